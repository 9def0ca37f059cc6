import { type IndexRow, openFinding, stem } from "./finding.ts";

/** A button at each block of code, where the browser lets a page write to the clipboard. */
function addCopyButtons(): void {
  const { clipboard } = navigator;
  if (!clipboard) return;
  for (const block of document.querySelectorAll<HTMLElement>("main pre")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await clipboard.writeText(block.textContent ?? "");
      button.textContent = "Copied";
    });
    button.addEventListener("blur", () => {
      button.textContent = "Copy";
    });
    const around = document.createElement("div");
    around.className = "code";
    block.replaceWith(around);
    around.append(block, button);
  }
}

const excerptChars = 120;

function excerpt(text: string, query: string): string {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean).map(stem);
  const places = words.map((word) => text.toLowerCase().indexOf(word)).filter((at) => at >= 0);
  const from = Math.max(0, (places.length > 0 ? Math.min(...places) : 0) - excerptChars / 3);
  return `${from > 0 ? "… " : ""}${text.slice(from, from + excerptChars)}`;
}

function start(form: HTMLFormElement): void {
  const input = form.querySelector("input")!;
  const list = form.querySelector("ul")!;
  let loading: Promise<ReturnType<typeof openFinding>> | undefined;
  let chosen = -1;

  const load = () => {
    loading ??= fetch(form.dataset.index!).then(async (answer) => openFinding(await answer.json()));
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
      none.textContent = "Nothing has any of these words";
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
    const find = await load();
    if (input.value === asked) show(find(asked));
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
if (form) {
  start(form);
  addCopyButtons();
}
