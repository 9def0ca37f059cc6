import { join } from "node:path";
import { groups } from "../../src/docs/list.ts";

const source = join(import.meta.dir, "../../src");

/** A block of code on a page of the documentation. */
export interface DocsBlock {
  page: string;
  language: string;
  isProgram: boolean;
  text: string;
}

const pages = await Promise.all(
  groups
    .flatMap((group) => group.pages)
    .filter(({ file }) => file.startsWith("docs/pages/"))
    .map(async ({ name, file }) => ({ name, text: await Bun.file(join(source, file)).text() })),
);

export const docsBlocks: readonly DocsBlock[] = pages.flatMap(({ name, text }) =>
  [...text.matchAll(/^```(\w+)( program)?\n([\s\S]*?)^```/gm)].map(([, language, program, inside]) => ({
    page: name,
    language: language!,
    isProgram: program !== undefined,
    text: inside!,
  })),
);

/** Every line of `svc` on a page, as a shell would run it. */
export const docsCommands = docsBlocks
  .filter(({ language }) => language === "sh")
  .flatMap(({ page, text }) =>
    text
      .replaceAll("\\\n", " ")
      .split("\n")
      .flatMap((line) => line.split(/&&|\|/))
      .map((line) => line.replace(/\s+#.*$/, "").trim())
      .filter((line) => line.startsWith("svc "))
      .map((line) => ({ page, line })),
  );
