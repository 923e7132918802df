"""The results of the demo in words: lines for a terminal, sections of the page."""

from typing import Any

from fastsketch.cli.demo._anomaly import GRAIN, PIECE
from fastsketch.cli.demo._digits import STEPS
from fastsketch.cli.demo._page import Section
from fastsketch.cli.demo._restoring import DAMAGE

Results = dict[str, Any]


def report_lines(found: Results) -> list[str]:
    """Return the results as text."""
    size, rows, k = found["sketch_bytes"], found["sketch_size"], found["components"]
    error, bound, squared = found["true_error"], found["error_bound"], found["squared_norm"]
    return [
        f"sketch of {rows} rows      {found['rows_per_second']:12,.0f} rows/s  ({size / 1e3:,.0f} kB, "
        f"{_kept(found) / size:,.0f} times smaller)",
        f"IncrementalPCA({rows})       {found['incremental_pca_rows_per_second']:12,.0f} rows/s  "
        f"(timed on {found['peer_rows']:,} rows)   ratio {found['speed_ratio']:.1f}",
        f"exact sum              {found['exact_rows_per_second']:12,.0f} rows/s  (one thread each)",
        f"certificate            {bound:12.5g}  = {found['relative_error_bound']:.4%} of ||A||_F^2",
        f"true spectral error    {error:12.5g}  = {error / squared:.4%}  "
        f"({'within' if error <= bound else 'BEYOND'} the certificate)",
        f"components             {k:12}  with {found['variance_share']:.1%} of the variance; widest interval "
        f"{found['widest_interval']:.2%} of the last one's variance, after a second pass "
        f"{found['widest_refined_interval']:.4%}",
        f"neighbours             {found['search_ms_per_query']:12,.1f} ms a query; of the {found['neighbours_wanted']} "
        f"nearest {found['rescored_recall']:.0%} by {found['quantizer_bytes']}-byte codes and rows of candidates, "
        f"{found['codes_recall']:.0%} by codes alone, {found['hamming_recall']:.0%} by Hamming distance of "
        f"{found['hash_bits']} bits",
        f"retouched piece        {found['anomaly_found']:12.0%}  of its patches found at "
        f"{found['anomaly_false_alarms']:.0%} false alarms; by distance from the mean "
        f"{found['anomaly_found_by_distance_from_mean']:.0%}",
        f"online Newton (RFD)    {found['newton_examples_per_second']:12,.0f} examples/s; mistakes on digits "
        f"{found['newton_online_error']:.2%}, nothing tuned; best first-order learner "
        f"{found['best_first_order_online_error']:.2%}, ADA-FFD {found['best_ada_ffd_online_error']:.2%}, at the "
        f"best of {len(STEPS)} step sizes",
        f"restored photograph    {found['absolute_psnr']:12.1f} dB by the absolute loss in "
        f"{found['absolute_seconds']:.1f} s; damaged {found['damaged_psnr']:.1f} dB, square loss "
        f"{found['square_psnr']:.1f} dB",
    ]


def sections(found: Results) -> list[Section]:
    """Return the results as sections of the page."""
    return [_sketch(found), _components(found), _neighbours(found), _anomaly(found), _learning(found), _restored(found)]


def _kept(found: Results) -> int:
    return 4 * found["n_rows"] * found["n_features"]


def _sketch(found: Results) -> Section:
    squared = found["squared_norm"]
    return Section(
        f"A stream of {found['n_rows']:,} rows in {found['sketch_bytes'] / 1e3:,.0f} kB",
        "spectrum.png",
        "Squared singular values of the sketch by their index, a band of the certificate around them, and the exact "
        "values, which run through the band.",
        [
            ("rows", f"{found['n_rows']:,} of {found['n_features']} numbers"),
            ("rows of the sketch", f"{found['sketch_size']}"),
            ("certificate", f"{found['relative_error_bound']:.4%}"),
            ("true error", f"{found['true_error'] / squared:.4%}"),
            ("rows a second, one thread", f"{found['rows_per_second']:,.0f}"),
            ("the exact sum, rows a second", f"{found['exact_rows_per_second']:,.0f}"),
            ("IncrementalPCA, rows a second", f"{found['incremental_pca_rows_per_second']:,.0f}"),
        ],
        "Colour patches of 16 x 16 pixels of two photographs went by once. What is left of them stands for the sums "
        "of all their squares and products. Both errors are shares of the sum of all squares.",
        "The certificate is known without the rows and holds on every stream. Here the exact sum was kept, too, to "
        f"show the true error beside it. IncrementalPCA was timed on {found['peer_rows']:,} rows; with as many rows it "
        "has the smaller error on rows that come in no order, and no bound.",
        [("how a sketch works", "how/sketch.md"), ("its certificate", "how/certificate.md")],
    )


def _components(found: Results) -> Section:
    k = found["components"]
    ends, refined = found["variance_intervals"], found["refined_variance_intervals"]
    return Section(
        "Components, each with the interval of its variance",
        "components.png",
        f"The {k} leading components as colour patches: brightness, a colour, then gradients and waves. Below, the "
        "interval of each variance after one pass and after two, with the true value in both.",
        [
            ("components", f"{k}, {found['variance_share']:.1%} of the variance"),
            ("first variance, one pass", f"{ends[0][0]:.4g} to {ends[0][1]:.4g}"),
            ("after a second pass", f"{refined[0][0]:.6g} to {refined[0][1]:.6g}"),
            (f"variance {k}, one pass", f"{ends[-1][0]:.3g} to {ends[-1][1]:.3g}"),
            ("after a second pass", f"{refined[-1][0]:.4g} to {refined[-1][1]:.4g}"),
            ("true values within", f"{found['true_variances_within']} of {2 * k}"),
        ],
        "A component is a pattern that patches share; its variance says how much of them it explains. After one pass "
        "all intervals are equally long: as long as shrinks have taken from the rows in all.",
        "The true variance of the rows seen lies in its interval, always. That of rows still to come may not. Where "
        "rows can be read again, a second pass makes intervals narrow.",
        [("principal components", "jobs/components.md"), ("why intervals hold", "read-outs.md")],
    )


def _neighbours(found: Results) -> Section:
    wanted = found["neighbours_wanted"]
    return Section(
        "Neighbours: codes propose, rows decide",
        "neighbours.png",
        "For each of four patches three lines of neighbours: those by Hamming distance are loosely alike, those by "
        "codes and rows are the same as the true ones, framed in green, but for a few.",
        [
            ("codes of all patches", f"{found['code_bytes'] / 1e6:.1f} MB"),
            (f"of the {wanted} nearest, by {found['hash_bits']} bits", f"{found['hamming_recall']:.0%}"),
            (f"by {found['quantizer_bytes']}-byte codes alone", f"{found['codes_recall']:.0%}"),
            ("codes, then rows", f"{found['rescored_recall']:.1%}"),
            ("a query", f"{found['search_ms_per_query']:.1f} ms"),
            ("rows learned a second", f"{found['quantizer_rows_per_second']:,.0f}"),
        ],
        f"A code of {found['quantizer_bytes']} bytes estimates distances well enough to propose "
        f"{10 * wanted:,} of {found['n_rows']:,} patches. Their rows are read, and their true distances decide.",
        f"Measured on {found['neighbour_queries']} patches drawn at random, against all distances. Estimates have no "
        "bound; how many of the nearest are found depends on the rows: measure it on yours.",
        [
            ("nearest neighbours", "jobs/neighbours.md"),
            ("what an estimate means", "jobs/neighbours.md#what-an-estimate-means"),
        ],
    )


def _anomaly(found: Results) -> Section:
    return Section(
        "An anomaly: each value ordinary, their combination not",
        "anomaly.png",
        "A photograph of a temple, in which a dotted frame shows where the retouched piece is, and a map of distances: "
        "dark in the sky, lighter in roofs and trees, lightest in the retouched piece, which stands out as a square.",
        [
            ("patches within the piece", f"{found['anomaly_patches']:,}"),
            ("found, Mahalanobis", f"{found['anomaly_found']:.0%}"),
            ("found, distance from the mean", f"{found['anomaly_found_by_distance_from_mean']:.0%}"),
            ("false alarms", f"{found['anomaly_false_alarms']:.0%}"),
        ],
        f"A piece of {PIECE} x {PIECE} pixels got another grain, noise of {GRAIN:.0%} of the range. The covariance of "
        "patches knows how alike neighbouring pixels are; the piece breaks that rule.",
        "The threshold is that which one in a hundred other patches exceeds: distances of patches do not follow a "
        "chi-squared law. Not every change is found: a smooth piece from elsewhere is nothing unusual.",
        [("anomalies", "jobs/anomalies.md"), ("covariance and outliers", "jobs/anomalies.md#covariance-and-outliers")],
    )


def _learning(found: Results) -> Section:
    return Section(
        "Learning while predicting",
        "online.png",
        "Above, the share of mistakes of five learners over the examples; below, how it depends on the step size: the "
        "Newton learner's is a level line, the others' are valleys.",
        [
            ("digits", f"{found['online_examples']:,}"),
            ("mistakes, Newton", f"{found['newton_online_error']:.2%}"),
            ("best first-order learner", f"{found['best_first_order_online_error']:.2%}"),
            ("ADA-FFD", f"{found['best_ada_ffd_online_error']:.2%}"),
            ("examples a second", f"{found['newton_examples_per_second']:,.0f}"),
        ],
        "Each digit is predicted before it is learned from, so mistakes are counted on rows not seen. The Newton "
        "learner has no step size; the others have that which turned out best of five.",
        "One order of one small set: a picture, not a comparison. Elsewhere a well-tuned first-order learner is as "
        "accurate, and faster, often by a large factor.",
        [("learning", "jobs/learning.md"), ("the Newton step", "how/newton.md")],
    )


def _restored(found: Results) -> Section:
    return Section(
        "A photograph restored",
        "restored.png",
        "Four grey pictures of a temple: the original, one with a fifth of its pixels black or white, a blurred and "
        "speckled one by the square loss, and a clear one by the absolute loss.",
        [
            ("damaged", f"{found['damaged_psnr']:.1f} dB"),
            ("square loss", f"{found['square_psnr']:.1f} dB"),
            ("absolute loss", f"{found['absolute_psnr']:.1f} dB"),
            ("seconds", f"{found['absolute_seconds']:.1f}"),
        ],
        f"{DAMAGE:.0%} of the pixels have become black or white, nobody says which. A low-rank model under the "
        "absolute loss leaves them aside; under the square loss it bends towards them.",
        "Decibels are of the peak against the error, to the original, which the model has not seen. A method made for "
        "pictures would do better: this one knows rows and columns, and nothing of pictures.",
        [("completing a matrix", "jobs/completing.md"), ("ranks and ridges", "jobs/completing.md#ranks-and-ridges")],
    )
