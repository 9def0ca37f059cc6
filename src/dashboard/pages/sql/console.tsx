import { useEffect, useRef, useState } from "preact/hooks";
import { messageOf } from "../../lib/api.ts";
import { useLoaded } from "../../lib/hooks.ts";
import { columnsOf, ownTables, projectionTables, runSql } from "../../lib/projections.ts";
import { address, setQuery } from "../../lib/router.ts";
import { problemOf, type SqlAnswer, type SqlProblem } from "../../lib/sql-text.ts";
import { Button, Empty, Failure, Page, Text } from "../../ui/basics.tsx";
import { Icon } from "../../ui/icons.tsx";
import { Answer } from "./answer.tsx";
import type { Editor, SqlTables } from "./editor.ts";

/** Where the query is written: a plain field until the editor is loaded, or where it cannot be. */
function QueryEditor(props: {
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

const rowsMax = [100, 1_000, 10_000];

export function SqlPage() {
  const asked = address.value.query.get("query") ?? "";
  const [given, setGiven] = useState({ text: asked });
  const [text, setText] = useState(asked);
  const [most, setMost] = useState(1_000);
  const [result, setResult] = useState<{ answer?: SqlAnswer; problem?: SqlProblem }>({});
  const [isRunning, setRunning] = useState(false);
  const running = useRef<AbortController>(undefined);
  const [tables, setTables] = useState<SqlTables>(() =>
    Object.fromEntries(ownTables.map((table) => [table, []])),
  );
  const give = (query: string) => {
    setGiven({ text: query });
    setText(query);
  };
  useEffect(() => {
    if (asked !== text) give(asked);
  }, [asked]);
  useEffect(() => () => running.current?.abort(), []);

  const run = async () => {
    if (isRunning || text.trim() === "") return;
    const over = new AbortController();
    running.current = over;
    setRunning(true);
    setQuery({ query: text });
    try {
      setResult({ answer: await runSql(text, { maxRows: most, signal: over.signal }) });
    } catch (error) {
      if (!over.signal.aborted) setResult({ problem: problemOf(messageOf(error), text) });
    }
    setRunning(false);
  };
  const change = (changed: string) => {
    setText(changed);
    if (result.problem) setResult({});
  };
  return (
    <Page title="SQL" about="Reads runs, steps, events, functions and SQL projections of this environment">
      <div class="sql">
        <div class="sql-main">
          <QueryEditor
            {...{ given, tables, problem: result.problem }}
            onText={change}
            onRun={() => void run()}
          />
          {result.problem && (
            <p class="form-error" role="alert">
              <Text of={result.problem.message} />
            </p>
          )}
          <div class="sql-tools">
            {isRunning ? (
              <Button icon="stop" text="Stop" onClick={() => running.current?.abort()} />
            ) : (
              <Button kind="primary" icon="play" isDisabled={text.trim() === ""} onClick={() => void run()}>
                Run
              </Button>
            )}
            <span class="kbd" aria-hidden="true">
              Ctrl Enter
            </span>
            <label class="sql-most">
              {"At most "}
              <select value={`${most}`} onChange={({ currentTarget: { value } }) => setMost(Number(value))}>
                {rowsMax.map((rows) => (
                  <option key={rows} value={`${rows}`}>
                    {rows.toLocaleString("en")}
                  </option>
                ))}
              </select>
              {" rows"}
            </label>
          </div>
          {result.answer ? (
            <Answer of={result.answer} />
          ) : (
            !result.problem && <Empty title={isRunning ? "Running…" : "Rows appear here"} />
          )}
        </div>
        <Tables
          tables={tables}
          onKnown={(table, columns) => setTables((before) => ({ ...before, [table]: columns }))}
          onChosen={(table) => give(`SELECT * FROM ${table} LIMIT 100`)}
        />
      </div>
    </Page>
  );
}

/** What can be queried. Tables' columns of all environments are read at once, projections' when opened. */
function Tables(props: {
  tables: SqlTables;
  onKnown: (table: string, columns: readonly string[]) => void;
  onChosen: (table: string) => void;
}) {
  const { tables, onKnown, onChosen } = props;
  const { value, error, reload } = useLoaded(async (signal) => {
    for (const table of ownTables)
      await columnsOf(table, signal).then(
        (columns) => onKnown(table, columns),
        // Policies may keep a table from the reader.
        () => {},
      );
    const found = await projectionTables(signal);
    for (const table of found) onKnown(table, []);
    return found;
  }, []);
  return (
    <aside class="sql-tables" aria-label="Tables">
      <h2>Tables</h2>
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      <ul>
        {[...ownTables, ...(value ?? [])].map((table) => (
          <li key={table}>
            <OneTable {...{ table, onKnown, onChosen }} columns={tables[table] ?? []} />
          </li>
        ))}
      </ul>
    </aside>
  );
}

function OneTable(props: {
  table: string;
  columns: readonly string[];
  onKnown: (table: string, columns: readonly string[]) => void;
  onChosen: (table: string) => void;
}) {
  const { table, columns, onKnown, onChosen } = props;
  const [isOpen, setOpen] = useState(false);
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    if (!isOpen || columns.length > 0) return;
    const over = new AbortController();
    columnsOf(table, over.signal).then(
      (found) => onKnown(table, found),
      (failure) => over.signal.aborted || setError(failure),
    );
    return () => over.abort();
  }, [isOpen]);
  return (
    <>
      <span class="sql-table">
        <button type="button" class="sql-open" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          <Icon name="chevron" size={12} />
          <code>{table}</code>
        </button>
        <Button kind="quiet" icon="edit" label={`Query ${table}`} onClick={() => onChosen(table)} />
      </span>
      {isOpen && error !== undefined && <Failure error={error} />}
      {isOpen && (
        <ul class="sql-columns">
          {columns.map((column) => (
            <li key={column}>
              <Text of={column} in="code" />
            </li>
          ))}
        </ul>
      )}
    </>
  );
}
