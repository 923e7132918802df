/* Includes FS_FILE once for float and once for double: REAL is the type, TYPED(verb) the name of a function of it. */
#define REAL float
#define TYPED(verb) verb##_s
#include FS_FILE
#undef REAL
#undef TYPED

#define REAL double
#define TYPED(verb) verb##_d
#include FS_FILE
#undef REAL
#undef TYPED
#undef FS_FILE
