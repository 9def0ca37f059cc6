import { expect, test } from "bun:test";
import { openFinding } from "../../src/docs/finding.ts";
import { foundIn, madePages } from "../../src/docs/site.ts";
import { pageQuestions, questions, termQuestions } from "./docs-questions.ts";
import { everydayQuestions } from "./docs-questions-everyday.ts";
import { heldQuestions } from "./docs-questions-held.ts";

const find = openFinding(foundIn(madePages()));
/** The pages in the order in which they are shown. */
const pagesFor = (asked: string): string[] => [
  ...new Set(find(asked).map(({ href }) => href.replace(/^\/docs\/|#.*$/g, ""))),
];

/** Those whose page is neither first nor second. */
const missedOf = (asked: typeof questions): string[] =>
  asked.flatMap(([text, ...pages]) => {
    const [first, second] = pagesFor(text);
    return pages.some((page) => page === first || page === second) ? [] : `${text}: ${first}, ${second}`;
  });

test("of a hundred questions in the words of others at least 95 have their page first or second", () => {
  expect(new Set([...questions, ...heldQuestions].map(([asked]) => asked)).size).toBe(100);
  const missed = missedOf(questions);
  // Of the held ones, which nobody who changes the search looks at, a failure says the number alone.
  const count = missed.length + missedOf(heldQuestions).length;
  if (count > 5) expect({ count, missed }).toEqual({ count: 5, missed: [] });
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

test("what the dashboard links to in the documentation is there", async () => {
  const there = new Set(foundIn(madePages()).map(({ href }) => href.replace("/docs/", "")));
  const folder = `${import.meta.dir}/../../src/dashboard`;
  const texts = await Promise.all(
    [...new Bun.Glob("**/*.tsx").scanSync({ cwd: folder })].map((file) =>
      Bun.file(`${folder}/${file}`).text(),
    ),
  );
  const linked = texts.flatMap((text) =>
    [...text.matchAll(/(?:\bdocs=(?:\{.*?)?"|"\/docs\/)([\w-]+(?:#[\w-]+)?)"/g)].map(([, page]) => page!),
  );
  expect(linked.length).toBeGreaterThan(15);
  expect(linked.filter((page) => page !== "api" && !there.has(page))).toEqual([]);
});

test("of the words of other systems nine in ten have their page first or second", () => {
  const missed = missedOf(termQuestions);
  if (missed.length > termQuestions.length / 10) expect(missed).toEqual([]);
});

test("of everyday questions of people who know other systems nine in ten have their page first or second", () => {
  const missed = missedOf(everydayQuestions);
  if (missed.length > everydayQuestions.length / 10) expect(missed).toEqual([]);
});

test("of questions that were made up page by page nine in ten have their page first or second", () => {
  const missed = missedOf(pageQuestions);
  if (missed.length > pageQuestions.length / 10) expect(missed).toEqual([]);
});
