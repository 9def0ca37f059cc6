import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { count } from "../lib/format.ts";
import type { Loaded } from "../lib/hooks.ts";
import { Button, Empty, Failure } from "./basics.tsx";

/** Holds what may be wider than its place, such as a table: keys scroll it. Screen readers read `label`. */
export function Scrolling(props: { label: string; class?: string; children: ComponentChildren }) {
  const { label, class: kind = "", children } = props;
  const frame = useRef<HTMLElement>(null);
  const [isWider, setWider] = useState(false);
  useEffect(() => {
    const element = frame.current!;
    const measured = new ResizeObserver(() => setWider(element.scrollWidth > element.clientWidth));
    for (const one of [element, ...element.children]) measured.observe(one);
    return () => measured.disconnect();
  }, []);
  return (
    <section
      ref={frame}
      class={`table-scroll ${kind}`}
      {...(isWider && { "aria-label": label, tabIndex: 0 })}
    >
      {children}
    </section>
  );
}

export interface Column<Row> {
  name: string;
  isNumber?: boolean;
  of: (row: Row) => ComponentChildren;
}

/** Rows with a head; the first column names the row. */
export function Table<Row>(props: {
  rows: readonly Row[];
  columns: readonly Column<Row>[];
  keyOf: (row: Row, index: number) => string;
  label?: string;
}) {
  const { rows, columns, keyOf, label } = props;
  return (
    <Scrolling label={label ?? "Table"}>
      <table class="table" aria-label={label}>
        <thead>
          <tr>
            {columns.map(({ name, isNumber }) => (
              <th key={name} scope="col" class={isNumber ? "number" : undefined}>
                {name === "" ? <span class="visually-hidden">Actions</span> : name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={keyOf(row, index)}>
              {columns.map(({ name, isNumber, of }, place) =>
                place === 0 ? (
                  <th key={name} scope="row">
                    {of(row)}
                  </th>
                ) : (
                  <td key={name} class={isNumber ? "number" : undefined}>
                    {of(row)}
                  </td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </Scrolling>
  );
}

export interface ReadTableProps<Row> {
  read: Pick<Loaded<readonly Row[]>, "value" | "error" | "reload"> & {
    hasMore?: boolean;
    showMore?: () => void;
  };
  columns: readonly Column<Row>[];
  keyOf: (row: Row, index: number) => string;
  /** In place of no rows: a text is the title of an `Empty`, which `says` more, with a page of `docs`. */
  empty: ComponentChildren;
  says?: string;
  docs?: string;
  label?: string;
}

/** A list that is read: its failure, that it is empty, its rows, and more of them. */
export function ReadTable<Row>(props: ReadTableProps<Row>) {
  const { read, empty, says, docs, ...table } = props;
  const { value, error, reload, hasMore, showMore } = read;
  return (
    <>
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {value === undefined && error === undefined && <p class="faint">Reading…</p>}
      {value?.length === 0 &&
        (typeof empty === "string" ? <Empty title={empty} says={says} docs={docs} /> : empty)}
      {value !== undefined && value.length > 0 && <Table rows={value} {...table} />}
      {hasMore && (
        <p class="more">
          <Button onClick={() => showMore?.()}>Show more</Button>
        </p>
      )}
    </>
  );
}

/** A number that should be none. */
export const Bad = ({ of }: { of: number }) => (
  <span class={of > 0 ? "bad-text" : undefined}>{count(of)}</span>
);
