/* The theme's arrows that open a branch of the tree have no words: a screen reader is given those of the branch. */
document.addEventListener("DOMContentLoaded", () => {
  for (const arrow of document.querySelectorAll("li.has-children > details > summary")) {
    const link = arrow.closest("li").querySelector(":scope > a");
    if (link) arrow.setAttribute("aria-label", `Pages of ${link.textContent.trim()}`);
  }
});
