import { useEffect, useRef, useState } from "preact/hooks";
import type { SqlProblem } from "../../lib/sql-text.ts";
import type { Editor, SqlTables } from "./editor.ts";

/** Where the query is written: a plain field until the editor is loaded, or where it cannot be. */
export function QueryEditor(props: {
  /** What is written by others than the reader; another object takes the place of what stands there. */
  given: { text: string };
  problem: SqlProblem | undefined;
  tables: SqlTables;
  onText: (text: string) => void;
  onRun: () => void;
}) {
  const { given, problem, tables } = props;
  const place = useRef<HTMLDivElement>(null);
  const plainField = useRef<HTMLTextAreaElement>(null);
  const [editor, setEditor] = useState<Editor>();
  const text = useRef(given.text);
  const latest = useRef(props);
  latest.current = props;
  const type = (typed: string) => {
    text.current = typed;
    latest.current.onText(typed);
  };
  useEffect(() => {
    let made: Editor | undefined;
    let isOver = false;
    import("./editor.ts").then(
      ({ openEditor }) => {
        if (isOver || !place.current) return;
        const hadFocus = document.activeElement === plainField.current;
        made = openEditor(place.current, {
          ...{ text: text.current, label: "Query", onText: type },
          onRun: () => latest.current.onRun(),
        });
        setEditor(made);
        if (hadFocus) made.focus();
      },
      () => {},
    );
    return () => {
      isOver = true;
      made?.close();
    };
  }, []);
  useEffect(() => {
    text.current = given.text;
    if (editor) editor.setText(given.text);
    else if (plainField.current) plainField.current.value = given.text;
  }, [given]);
  useEffect(() => editor?.mark(problem), [editor, problem]);
  useEffect(() => editor?.complete(tables), [editor, tables]);
  return (
    <div class="editor">
      <div ref={place} class="editor-place" hidden={!editor} />
      {!editor && (
        <textarea
          ref={plainField}
          class="code"
          aria-label="Query"
          rows={6}
          spellcheck={false}
          defaultValue={given.text}
          onInput={({ currentTarget: { value } }) => type(value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) props.onRun();
          }}
        />
      )}
    </div>
  );
}
