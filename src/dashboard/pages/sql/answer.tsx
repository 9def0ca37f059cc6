import { useState } from "preact/hooks";
import { count, cut, duration, plain } from "../../lib/format.ts";
import { csvOf, numberColumns, type SqlAnswer } from "../../lib/sql-text.ts";
import { BarChart } from "../../ui/bar-chart.tsx";
import { Button, Empty, Text } from "../../ui/basics.tsx";
import { Dialog } from "../../ui/dialog.tsx";
import { download } from "../../ui/download.ts";
import { JsonTextView } from "../../ui/json-view.tsx";
import { Scrolling } from "../../ui/table.tsx";

/** Rows that are drawn at first, and by each wish for more. */
const rowsShown = 200;
/** A longer value opens in a window of its own. */
const shownCharacters = 160;
const barsMax = 200;

/** Rows of a query as a table or as bars, and as a file. */
export function Answer({ of }: { of: SqlAnswer }) {
  const [isChart, setChart] = useState(false);
  const numbers = numberColumns(of);
  const canChart = numbers.length > 0 && of.rows.length > 1;
  return (
    <section aria-label="Answer">
      <div class="sql-answer-head">
        <p class="hint" role="status">
          {`${count(of.rows.length)} ${of.rows.length === 1 ? "row" : "rows"} in ${duration(of.tookMs)}`}
          {of.isCut && "; there are more, which were left out"}
        </p>
        {canChart && <Button text="Chart" isPressed={isChart} onClick={() => setChart(!isChart)} />}
        {of.rows.length > 0 && (
          <Button onClick={() => download("query.csv", "text/csv;charset=utf-8", csvOf(of))}>CSV</Button>
        )}
      </div>
      {of.rows.length === 0 && <Empty title="No rows" />}
      {isChart && canChart ? (
        <AnswerChart of={of} numbers={numbers} />
      ) : (
        of.rows.length > 0 && <Rows of={of} numbers={numbers} />
      )}
    </section>
  );
}

function Rows({ of, numbers }: { of: SqlAnswer; numbers: readonly number[] }) {
  const [most, setMost] = useState(rowsShown);
  const [opened, setOpened] = useState<{ column: string; value: string }>();
  const kind = (place: number) => (numbers.includes(place) ? "number" : undefined);
  return (
    <>
      <Scrolling label="Rows" class="sql-rows">
        <table class="table">
          <thead>
            <tr>
              {of.columns.map((column, place) => (
                <th key={place} scope="col" class={kind(place)}>
                  <Text of={column} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {of.rows.slice(0, most).map((row, index) => (
              <tr key={index}>
                {row.map((value, place) => (
                  <td key={place} class={kind(place)}>
                    <Cell
                      value={value}
                      onOpen={() => setOpened({ column: of.columns[place] ?? "", value: value ?? "" })}
                    />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </Scrolling>
      {of.rows.length > most && (
        <p class="more">
          <Button onClick={() => setMost(most + rowsShown)}>
            {`Show more of ${count(of.rows.length - most)}`}
          </Button>
        </p>
      )}
      {opened && (
        <Dialog title={plain(cut(opened.column, shownCharacters))} onClose={() => setOpened(undefined)}>
          <JsonTextView text={opened.value} what="value" />
        </Dialog>
      )}
    </>
  );
}

function Cell({ value, onOpen }: { value: string | null; onOpen: () => void }) {
  if (value === null) return <span class="faint">null</span>;
  if (value.length <= shownCharacters) return <Text of={value} />;
  return (
    <button type="button" class="sql-cell" onClick={onOpen}>
      <Text of={cut(value, shownCharacters)} />
    </button>
  );
}

function AnswerChart({ of, numbers }: { of: SqlAnswer; numbers: readonly number[] }) {
  const names = of.columns.map((_, place) => place).filter((place) => !numbers.includes(place));
  const [name, setName] = useState(names[0] ?? 0);
  const [value, setValue] = useState(numbers.find((place) => place !== name) ?? numbers[0]!);
  const choice = (label: string, of_: readonly number[], chosen: number, choose: (place: number) => void) => (
    <label class="sql-most">
      {`${label} `}
      <select value={`${chosen}`} onChange={({ currentTarget }) => choose(Number(currentTarget.value))}>
        {of_.map((place) => (
          <option key={place} value={`${place}`}>
            {plain(of.columns[place] ?? "")}
          </option>
        ))}
      </select>
    </label>
  );
  const bars = of.rows
    .slice(0, barsMax)
    .map((row) => ({ name: row[name] ?? "null", value: Number(row[value] ?? 0) }));
  return (
    <div class="chart">
      <div class="sql-tools">
        {choice("Bars of", numbers, value, setValue)}
        {choice(
          "named by",
          of.columns.map((_, place) => place),
          name,
          setName,
        )}
      </div>
      <BarChart bars={bars} what={of.columns[value] ?? ""} />
      {of.rows.length > barsMax && <p class="hint">{`The first ${barsMax} rows`}</p>}
    </div>
  );
}
