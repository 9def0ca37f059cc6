import {
  autocompletion,
  closeBrackets,
  closeBracketsKeymap,
  completionKeymap,
} from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { PostgreSQL, sql } from "@codemirror/lang-sql";
import { bracketMatching, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { setDiagnostics } from "@codemirror/lint";
import { Compartment, EditorState } from "@codemirror/state";
import { drawSelection, EditorView, keymap, lineNumbers, placeholder } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import type { SqlProblem } from "../../lib/sql-text.ts";

/** Tables with the names of their columns. */
export type SqlTables = Readonly<Record<string, readonly string[]>>;

/** An editor in the page. */
export interface Editor {
  setText(text: string): void;
  /** Underlines what is wrong; nothing without a problem. */
  mark(problem: SqlProblem | undefined): void;
  complete(tables: SqlTables): void;
  focus(): void;
  close(): void;
}

const look = EditorView.theme({
  "&": { backgroundColor: "var(--surface)", color: "var(--text)", fontSize: "13px", height: "100%" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6" },
  ".cm-content": { caretColor: "var(--text)", padding: "10px 0" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": {
    backgroundColor: "var(--sunken)",
    color: "var(--faint)",
    borderRight: "1px solid var(--line)",
  },
  ".cm-placeholder": { color: "var(--faint)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "var(--accent-soft)",
  },
  ".cm-matchingBracket": { backgroundColor: "var(--accent-soft)", outline: "1px solid var(--accent)" },
  ".cm-tooltip": {
    backgroundColor: "var(--surface)",
    color: "var(--text)",
    border: "1px solid var(--line)",
    borderRadius: "8px",
    boxShadow: "var(--shadow)",
    overflow: "hidden",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", fontSize: "12px" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "3px 10px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": {
    backgroundColor: "var(--accent-soft)",
    color: "var(--accent)",
  },
  ".cm-completionDetail": { color: "var(--faint)" },
  ".cm-diagnostic": { fontFamily: "var(--sans)" },
  ".cm-lintRange-error": {
    backgroundImage: "none",
    textDecoration: "underline wavy var(--bad-bar)",
    textUnderlineOffset: "3px",
  },
});

const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--accent)", fontWeight: "550" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--busy)" },
  { tag: tags.comment, color: "var(--faint)", fontStyle: "italic" },
  { tag: tags.operator, color: "var(--muted)" },
  { tag: tags.typeName, color: "var(--warn)" },
]);

/**
 * Writes over what is selected by itself. The browser would give the new text the colour of the old one in a
 * style attribute, which the page's policy refuses with a complaint.
 */
const overwrite = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { data: text, inputType } = event;
    const { from, to, empty } = view.state.selection.main;
    if (inputType !== "insertText" || !text || empty || view.composing) return false;
    event.preventDefault();
    const insert = () =>
      view.state.update(view.state.replaceSelection(text), { userEvent: "input.type", scrollIntoView: true });
    const isHandled = view.state
      .facet(EditorView.inputHandler)
      .some((handler) => handler(view, from, to, text, insert));
    if (!isHandled) view.dispatch(insert());
    return true;
  },
});

/**
 * An editor of SQL below `parent`. It stands in a shadow tree: only there CodeMirror adopts its style sheets,
 * and in the document it would need inline styles, which the page's policy refuses.
 */
export function openEditor(
  parent: HTMLElement,
  asked: { text: string; label: string; onText(text: string): void; onRun(): void },
): Editor {
  const root = parent.shadowRoot ?? parent.attachShadow({ mode: "open" });
  const language = new Compartment();
  const languageOf = (tables: SqlTables) =>
    sql({ dialect: PostgreSQL, schema: tables as Record<string, string[]>, upperCaseKeywords: true });
  const run = () => {
    asked.onRun();
    return true;
  };
  const view = new EditorView({
    parent: root,
    root,
    state: EditorState.create({
      doc: asked.text,
      extensions: [
        keymap.of([{ key: "Mod-Enter", run }]),
        keymap.of([...closeBracketsKeymap, ...completionKeymap, ...historyKeymap, ...defaultKeymap]),
        ...[lineNumbers(), history(), drawSelection(), bracketMatching(), closeBrackets(), autocompletion()],
        ...[language.of(languageOf({})), syntaxHighlighting(colours), look, EditorView.lineWrapping],
        overwrite,
        placeholder("SELECT name, count(*) FROM events GROUP BY name"),
        EditorView.contentAttributes.of({ "aria-label": asked.label }),
        EditorView.updateListener.of(({ docChanged, state }) => {
          if (docChanged) asked.onText(state.doc.toString());
        }),
      ],
    }),
  });
  return {
    setText(text) {
      if (text === view.state.doc.toString()) return;
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
    },
    mark(problem) {
      const end = view.state.doc.length;
      const shown =
        problem && problem.to > problem.from
          ? [{ ...problem, from: Math.min(problem.from, end), to: Math.min(problem.to, end) }]
          : [];
      view.dispatch(
        setDiagnostics(
          view.state,
          shown.map((one) => ({ ...one, severity: "error" as const })),
        ),
      );
    },
    complete: (tables) => view.dispatch({ effects: language.reconfigure(languageOf(tables)) }),
    focus: () => view.focus(),
    close: () => view.destroy(),
  };
}
