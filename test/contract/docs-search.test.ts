import { expect, test } from "bun:test";
import { openFinding } from "../../src/docs/finding.ts";
import { foundIn, madePages } from "../../src/docs/site.ts";
import { questions } from "./docs-questions.ts";
import { heldQuestions } from "./docs-questions-held.ts";

const find = openFinding(foundIn(madePages()));
/** The pages in the order in which they are shown. */
const pagesFor = (asked: string): string[] => [
  ...new Set(find(asked).map(({ href }) => href.replace(/^\/docs\/|#.*$/g, ""))),
];

/** The search was tuned with the first fifty; the others were written down before, and not looked at. */
test("of a hundred questions in the words of others at least 93 have their page first or second", () => {
  const all = [...questions, ...heldQuestions];
  expect(new Set(all.map(([asked]) => asked)).size).toBe(100);
  const missed = all.flatMap(([asked, ...pages]) => {
    const [first, second] = pagesFor(asked);
    return pages.some((page) => page === first || page === second) ? [] : `${asked}: ${first}, ${second}`;
  });
  if (missed.length > 7) expect(missed).toEqual([]);
});

test("a heading counts more than a text, a whole word more than a beginning, and any word is a fallback", () => {
  const row = (title: string, heading: string, text: string) => ({
    ...{ title, heading, text },
    href: `/docs/${title}#${heading}`,
  });
  const own = openFinding([
    row("a", "one", "a lease ends"),
    row("b", "Lease", "is renewed"),
    row("c", "two", "leasehold"),
    row("d", "not_found", "nothing"),
  ]);
  const headings = (asked: string) => own(asked).map(({ heading }) => heading);
  expect(headings("LEASE")).toEqual(["Lease", "one", "two"]);
  expect(headings("leases")).toEqual(["Lease", "one", "two"]);
  expect(headings("when is it renewd?")[0]).toBe("Lease");
  expect(headings("lease ends")[0]).toBe("one");
  expect(headings("unheard lease")[0]).toBe("Lease");
  expect(headings("not_found")).toEqual(["not_found"]);
  for (const nothing of ["  ", "?", "zzzzzz"]) expect(headings(nothing)).toEqual([]);
});
