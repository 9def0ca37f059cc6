import { posix } from "node:path";
import { Marked, type Token, type Tokens } from "marked";

/** A part of a page below one heading, as the search knows it. */
export interface Section {
  heading: string;
  /** Empty of what stands before the first heading. */
  id: string;
  text: string;
}

export interface RenderedPage {
  html: string;
  sections: readonly Section[];
}

const escapes: Record<string, string> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};
export const escaped = (text: string): string => text.replace(/[&<>"']/g, (one) => escapes[one]!);

/** The text of tokens without their marks. */
function plain(tokens: readonly Token[]): string {
  return tokens
    .map((token) => {
      if (token.type === "html" || token.type === "space") return "";
      if (token.type === "table") {
        const { header, rows } = token as Tokens.Table;
        return [header, ...rows].flatMap((row) => row.map((cell) => plain(cell.tokens))).join(" ");
      }
      if (token.type === "list")
        return (token as Tokens.List).items.map((item) => plain(item.tokens)).join(" ");
      if ("tokens" in token && token.tokens) return plain(token.tokens);
      return "text" in token ? (token.text as string) : "";
    })
    .join("");
}

/** `Five promises` becomes `five-promises`, as where the same page is read in a repository. */
const idOf = (text: string): string =>
  text
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, "")
    .replace(/\s/g, "-");

/** Ids of one page's headings, in their order: a second one of the same text gets a number. */
function idsOfPage(): (heading: string) => string {
  const used = new Map<string, number>();
  return (heading) => {
    const id = idOf(heading);
    const before = used.get(id) ?? 0;
    used.set(id, before + 1);
    return before === 0 ? id : `${id}-${before}`;
  };
}

/** Where a link of a page leads: an address, or undefined where nothing is served. */
export type Resolve = (target: string) => string | undefined;

/** `addresses` has the addresses of served files; a link to any other file of ours becomes plain text. */
export const resolveIn =
  (file: string, addresses: ReadonlyMap<string, string>): Resolve =>
  (target) => {
    if (/^(https?:|\/|#)/.test(target)) return target;
    const [path = "", anchor] = target.split("#");
    const address = addresses.get(posix.normalize(posix.join(posix.dirname(file), path)));
    return address && (anchor ? `${address}#${anchor}` : address);
  };

/** One page of Markdown as HTML without scripts, styles or HTML of its source. */
export function render(source: string, resolve: Resolve): RenderedPage {
  const nextId = idsOfPage();
  const marked = new Marked({
    gfm: true,
    renderer: {
      heading({ tokens, depth }) {
        const inner = this.parser.parseInline(tokens);
        const text = plain(tokens);
        const id = nextId(text);
        const link = `<a class="anchor" href="#${escaped(id)}" aria-label="Link to ${escaped(text)}">#</a>`;
        return `<h${depth} id="${escaped(id)}">${inner} ${link}</h${depth}>\n`;
      },
      code({ text, lang = "" }) {
        const language = escaped(lang.split(" ")[0]!);
        return `<pre tabindex="0"><code class="language-${language}">${escaped(text)}</code></pre>\n`;
      },
      table({ header, rows }) {
        const row = (cells: readonly Tokens.TableCell[], tag: string) =>
          `<tr>${cells.map((cell) => `<${tag}>${this.parser.parseInline(cell.tokens)}</${tag}>`).join("")}</tr>`;
        const body = rows.map((cells) => row(cells, "td")).join("\n");
        return `<div class="table" tabindex="0"><table><thead>${row(header, "th")}</thead>\n<tbody>${body}</tbody></table></div>\n`;
      },
      link({ href, tokens }) {
        const inner = this.parser.parseInline(tokens);
        const address = resolve(href);
        return address === undefined ? inner : `<a href="${escaped(address)}">${inner}</a>`;
      },
      image: ({ text }) => escaped(text),
      // Marks of generated parts are comments; other HTML is shown as it was written.
      html: ({ text }) => escaped(text.replace(/<!--[\s\S]*?-->/g, "")),
    },
  });
  const tokens = marked.lexer(source);
  const html = marked.parser(tokens);
  return { html, sections: sectionsOf(tokens) };
}

function sectionsOf(tokens: readonly Token[]): Section[] {
  const nextId = idsOfPage();
  const sections = [{ heading: "", id: "", texts: [] as string[] }];
  for (const token of tokens) {
    if (token.type === "heading") {
      const heading = plain((token as Tokens.Heading).tokens);
      sections.push({ heading, id: nextId(heading), texts: [] });
    } else sections.at(-1)!.texts.push(plain([token]));
  }
  return sections
    .map(({ texts, ...rest }) => ({ ...rest, text: texts.join(" ").replace(/\s+/g, " ").trim() }))
    .filter(({ heading, text }) => heading !== "" || text !== "");
}
