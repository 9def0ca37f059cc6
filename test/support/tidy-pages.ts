import { dirname, join, normalize } from "node:path";
import type { Rule } from "./tidy-rules.ts";
import { lineAt } from "./tidy-source.ts";

/** `proto/README.md`, or `proto/README.md 'Job reports'`, also where a comment breaks between the two. */
const citation = /([\w./-]+\.md)\b(?:,?\s*(?:\*|\/\/|#)?\s*'([^'\n]+)')?/g;

const headings = (page: string) =>
  new Set([...page.matchAll(/^#+ (.*)$/gm)].map((match) => match[1]!.replace(/^[A-Z]\d+\. /, "").trim()));

/** What is cited is in the tree, a section under its name: who reads a comment has nothing else to look it up in. */
export const pageBreaches =
  (pages: Map<string, string>): Rule =>
  (sources) =>
    sources.flatMap(({ path, text }) =>
      [...text.matchAll(citation)].flatMap((match) => {
        const [, cited, section] = match as unknown as [string, string, string | undefined];
        // A kind of page (`DECISIONS.md`) is named without its folder.
        const kind = [...pages.keys()].filter((page) => page.endsWith(`/${cited}`));
        const places = [cited, join(dirname(path), cited), join("src", cited), ...kind].map(normalize);
        const found = places.map((place) => pages.get(place)).filter((page) => page !== undefined);
        const at = `${path}:${lineAt(text, match.index)}`;
        if (found.length === 0) return [`${at}: ${cited} is not in the tree`];
        if (section === undefined || found.some((page) => headings(page).has(section))) return [];
        return [`${at}: ${cited} has no section '${section}'`];
      }),
    );
