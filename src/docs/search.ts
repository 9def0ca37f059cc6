/** A row of the index: one section of one page. */
export interface IndexRow {
  title: string;
  heading: string;
  text: string;
  href: string;
}

const shownMax = 12;
const excerptChars = 120;

/** Rows that have every word somewhere, those with words in title and heading first. */
export function search(rows: readonly IndexRow[], query: string): IndexRow[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const scored = rows.flatMap((row) => {
    const [title, heading, text] = [row.title, row.heading, row.text].map((one) => one.toLowerCase());
    let score = 0;
    for (const word of words) {
      const inTitle = title!.includes(word);
      const inHeading = heading!.includes(word);
      const inText = text!.includes(word);
      if (!inTitle && !inHeading && !inText) return [];
      score += (inHeading ? 6 : 0) + (inTitle ? 3 : 0) + (inText ? 1 : 0);
    }
    return [{ row, score }];
  });
  return scored
    .toSorted((a, b) => b.score - a.score)
    .slice(0, shownMax)
    .map(({ row }) => row);
}

function excerpt(text: string, query: string): string {
  const word = query.toLowerCase().split(/\s+/)[0] ?? "";
  const from = Math.max(0, text.toLowerCase().indexOf(word) - excerptChars / 3);
  return `${from > 0 ? "… " : ""}${text.slice(from, from + excerptChars)}`;
}

function start(form: HTMLFormElement): void {
  const input = form.querySelector("input")!;
  const list = form.querySelector("ul")!;
  let loading: Promise<readonly IndexRow[]> | undefined;
  let chosen = -1;

  const load = (): Promise<readonly IndexRow[]> => {
    loading ??= fetch(form.dataset.index!).then((answer) => answer.json());
    loading.catch(() => {
      loading = undefined;
    });
    return loading;
  };
  const choose = (at: number): void => {
    const options = [...list.children];
    options[chosen]?.setAttribute("aria-selected", "false");
    chosen = options.length === 0 ? -1 : (at + options.length) % options.length;
    const option = options[chosen];
    option?.setAttribute("aria-selected", "true");
    option?.scrollIntoView({ block: "nearest" });
    if (option) input.setAttribute("aria-activedescendant", option.id);
    else input.removeAttribute("aria-activedescendant");
  };
  const open = (isOpen: boolean): void => {
    list.hidden = !isOpen;
    input.setAttribute("aria-expanded", String(isOpen));
  };
  const show = (found: readonly IndexRow[]): void => {
    const options = found.map((row, at) => {
      const option = document.createElement("li");
      option.id = `found-${at}`;
      option.role = "option";
      option.dataset.href = row.href;
      option.setAttribute("aria-selected", "false");
      const title = document.createElement("strong");
      title.textContent = row.heading === row.title ? row.title : `${row.title}: ${row.heading}`;
      const text = document.createElement("span");
      text.textContent = excerpt(row.text, input.value);
      option.append(title, text);
      return option;
    });
    if (options.length === 0) {
      const none = document.createElement("li");
      none.role = "option";
      none.textContent = "Nothing has all of these words";
      options.push(none);
    }
    list.replaceChildren(...options);
    chosen = -1;
    input.removeAttribute("aria-activedescendant");
    open(true);
  };
  const go = (option: Element | undefined): void => {
    const href = (option as HTMLElement | undefined)?.dataset.href;
    if (href === undefined) return;
    open(false);
    location.assign(href);
  };

  input.addEventListener("focus", () => void load());
  input.addEventListener("input", async () => {
    const asked = input.value;
    if (asked.trim() === "") return open(false);
    const found = search(await load(), asked);
    if (input.value === asked) show(found);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      choose(chosen + (event.key === "ArrowDown" ? 1 : chosen < 0 ? 0 : -1));
    } else if (event.key === "Escape") open(false);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    go(list.children[Math.max(chosen, 0)]);
  });
  // A blur would close the list before the click arrives.
  list.addEventListener("mousedown", (event) => event.preventDefault());
  list.addEventListener("click", (event) => go((event.target as Element).closest("li") ?? undefined));
  input.addEventListener("blur", () => open(false));
  document.addEventListener("keydown", (event) => {
    const isTyping = (event.target as Element).closest("input, textarea, select") !== null;
    if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    input.focus();
  });
  form.hidden = false;
}

const form = globalThis.document?.querySelector<HTMLFormElement>("form[role=search]");
if (form) start(form);
