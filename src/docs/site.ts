import { existsSync, readFileSync } from "node:fs";
import { join, posix } from "node:path";
import type { IndexRow } from "./finding.ts";
import { type DocsPage, groups } from "./list.ts";
import { escaped, type RenderedPage, render, resolveIn } from "./render.ts";

const sources = join(import.meta.dir, "..");

interface MadePage extends DocsPage, RenderedPage {}

/** What is installed: a copy of the sources alone has no pages that stand beside them. */
const installed = (file: string): boolean => existsSync(join(sources, file));

export function madePages(): MadePage[] {
  const there = groups.flatMap(({ pages }) => pages).filter(({ file }) => installed(file));
  const addresses = new Map(there.map(({ name, file }) => [posix.normalize(file), `/docs/${name}`]));
  return there.map((page) => ({
    ...page,
    ...render(readFileSync(join(sources, page.file), "utf8"), resolveIn(page.file, addresses)),
  }));
}

interface Assets {
  script: string;
  style: string;
  index: string;
}

const listOf = (pages: readonly DocsPage[], current: string | undefined): string =>
  groups
    .map(({ title, pages: wanted }) => ({
      title,
      shown: wanted.filter(({ name }) => pages.some((page) => page.name === name)),
    }))
    .filter(({ shown }) => shown.length > 0)
    .map(({ title, shown }) => {
      const links = shown.map(({ name, title: text }) => {
        const here = name === current ? ' aria-current="page"' : "";
        return `<li><a href="/docs/${name}"${here}>${escaped(text)}</a></li>`;
      });
      return `<h2>${escaped(title)}</h2>\n<ul>${links.join("")}</ul>`;
    })
    .join("\n");

const shell = (
  { script, style, index }: Assets,
  { title, main, list, sections }: { title: string; main: string; list: string; sections: string },
): string => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escaped(title)} · svc</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/assets/${style}">
<script type="module" src="/docs/assets/${script}"></script>
</head>
<body>
<a class="skip" href="#main">Skip to the text</a>
<header>
<a class="home" href="/docs">svc docs</a>
<form role="search" data-index="/docs/assets/${index}" hidden>
<input type="search" role="combobox" aria-label="Search the documentation" aria-expanded="false"
 aria-controls="found" aria-autocomplete="list" autocomplete="off" placeholder="Search ( / )">
<ul id="found" role="listbox" aria-label="Found" hidden></ul>
</form>
<nav aria-label="Elsewhere"><a href="#pages" class="to-pages">Pages</a><a href="/docs/api">API</a><a href="/dashboard">Dashboard</a></nav>
</header>
<div class="columns">
<main id="main" tabindex="-1">
${main}
</main>
<nav id="pages" aria-label="Pages">
${list}
</nav>
${sections}
</div>
</body>
</html>
`;

function sectionsOf({ html }: RenderedPage): string {
  const links = [...html.matchAll(/<h2 id="([^"]*)">([\s\S]*?) <a class="anchor"/g)].map(
    ([, id, text = ""]) => `<li><a href="#${id}">${text.replace(/<[^>]*>/g, "")}</a></li>`,
  );
  if (links.length < 2) return "";
  return `<nav id="sections" aria-label="On this page">\n<h2>On this page</h2>\n<ul>${links.join("")}</ul>\n</nav>`;
}

function contents(pages: readonly DocsPage[]): string {
  const parts = groups.map(({ title, pages: wanted }) => {
    const rows = wanted
      .filter(({ name }) => pages.some((page) => page.name === name))
      .map(
        ({ name, title: text, about }) =>
          `<dt><a href="/docs/${name}">${escaped(text)}</a></dt><dd>${escaped(about)}</dd>`,
      );
    return `<h2>${escaped(title)}</h2>\n<dl>${rows.join("")}</dl>`;
  });
  return `<h1>Documentation</h1>
<p>svc stores events and runs your functions for them, durably. Begin with <a href="/docs/start">Start</a>. The
<a href="/docs/api">API page</a> lists every route and its fields; it asks for a key.</p>
${parts.join("\n")}`;
}

/** What the search looks through: a row a section. */
export const foundIn = (pages: readonly MadePage[]): IndexRow[] =>
  pages.flatMap(({ name, title, about, words, sections }) => [
    { title, text: about, heading: title, href: `/docs/${name}`, words },
    ...sections.map(({ heading, id, text }) => ({
      ...{ title, text },
      heading: heading || title,
      href: `/docs/${name}${id && `#${id}`}`,
    })),
  ]);

async function built(): Promise<{ name: string; contentType: string; bytes: Uint8Array<ArrayBuffer> }[]> {
  const { outputs } = await Bun.build({
    entrypoints: [join(import.meta.dir, "search.ts"), join(import.meta.dir, "style.css")],
    target: "browser",
    format: "esm",
    minify: true,
    sourcemap: "none",
    naming: "[name]-[hash].[ext]",
  });
  return Promise.all(
    outputs.map(async (output) => ({
      name: output.path.replace(/^.*\//, ""),
      contentType: output.type,
      bytes: new Uint8Array(await output.arrayBuffer()),
    })),
  );
}

/** The whole documentation, from its Markdown: `edge/docs-pages.ts` serves it. */
export async function buildDocs() {
  const pages = madePages();
  const files = await built();
  const rows = new TextEncoder().encode(JSON.stringify(foundIn(pages)));
  const index = {
    name: `index-${Bun.hash(rows).toString(36)}.json`,
    contentType: "application/json",
    bytes: rows,
  };
  const nameOf = (ending: string): string => files.find(({ name }) => name.endsWith(ending))?.name ?? "";
  const assets = { script: nameOf(".js"), style: nameOf(".css"), index: index.name };
  const page = (title: string, main: string, current?: MadePage): string =>
    shell(assets, {
      ...{ title, main },
      list: listOf(pages, current?.name),
      sections: current ? sectionsOf(current) : "",
    });
  const unknown = `<h1>There is no such page</h1>\n<p><a href="/docs">All pages</a></p>`;
  return {
    pages: new Map([
      ["", page("Documentation", contents(pages))],
      ...pages.map((one) => [one.name, page(one.title, one.html, one)] as const),
    ]),
    notFound: page("There is no such page", unknown),
    files: [...files, index],
  };
}
