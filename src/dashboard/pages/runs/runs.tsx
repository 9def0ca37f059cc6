import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { count, dateTime, lasted } from "../../lib/format.ts";
import { useLive, useNarrow, useNet, useOld, useTick } from "../../lib/hooks.ts";
import { addShortcuts } from "../../lib/keys.ts";
import { address, go, hrefOf } from "../../lib/router.ts";
import { isOver, type RunView } from "../../lib/runs.ts";
import { may } from "../../lib/session.ts";
import { Button, Empty, Failure, PageHead, Text, When } from "../../ui/basics.tsx";
import { Status } from "../../ui/status.tsx";
import { VirtualList } from "../../ui/virtual-list.tsx";
import { BulkBar } from "./bulk.tsx";
import { FilterBar } from "./filters.tsx";
import { filtersOf, RunList } from "./list-state.ts";

const rowHeight = 44;
const narrowRowHeight = 68;
/** Rows before the end of what is loaded at which the next page is read. */
const aheadRows = 150;
/** Frames move the list: what they missed is found so. */
const netEveryMs = 60_000;
/** Places drawn behind the last loaded row while more are on their way. */
const placesAhead = 60;

const lastsMs = (run: RunView, now: number): number | undefined =>
  run.startedAt === undefined ? undefined : (run.endedAt ?? now) - run.startedAt;

export function RunsPage() {
  const text = address.value.query.toString();
  const filters = useMemo(() => filtersOf(new URLSearchParams(text)), [text]);
  const list = useMemo(() => new RunList(filters), [filters]);
  useEffect(() => () => list.close(), [list]);
  useLive("system.run.*.*", { onFrame: (frame) => list.take(frame), onBack: () => list.back() });
  useNet(() => list.refreshHead(), netEveryMs);

  const chosen = useSignal<ReadonlySet<string>>(new Set());
  const active = useSignal(-1);
  useEffect(() => {
    chosen.value = new Set();
    active.value = -1;
  }, [list]);
  const choose = (id: string) => {
    const next = new Set(chosen.value);
    if (!next.delete(id)) next.add(id);
    chosen.value = next;
  };
  useEffect(() => {
    const move = (by: number) => () => {
      active.value = Math.max(0, Math.min(list.rows.value.length - 1, active.value + by));
    };
    const at = () => list.rows.value[active.value];
    return addShortcuts([
      { keys: "j", about: "Next run", act: move(1) },
      { keys: "k", about: "Run before", act: move(-1) },
      { keys: "o", about: "Open the run", act: () => at() && go(hrefOf(["runs", at()!.id])) },
      { keys: "x", about: "Select the run", act: () => at() && choose(at()!.id) },
    ]);
  }, [list]);

  const rows = list.rows.value;
  useOld(list.readAt.value, rows.length > 0 ? list.error.value : undefined, () => list.refreshHead());
  const selects = may("runs:cancel");
  return (
    <div class="page fills">
      <PageHead
        title="Runs"
        about={aboutList(list)}
        actions={<Button icon="refresh" label="Read again" onClick={() => list.refreshHead()} />}
      />
      <FilterBar />
      {selects && (
        <BulkBar filters={filters} chosen={chosen.value} onDone={() => (chosen.value = new Set())} />
      )}
      {list.error.value !== undefined && rows.length === 0 && (
        <Failure error={list.error.value} onRetry={() => list.more()} />
      )}
      {list.isPaused.value && (
        <p class="hint">
          None was found among the runs that were looked at.{" "}
          <Button onClick={() => list.more()}>Look at older ones</Button>
        </p>
      )}
      {list.isRead.value && rows.length === 0 ? (
        list.isPaused.value || (
          <Empty
            title={text === "" ? "No runs yet" : "No runs match"}
            says={
              text === ""
                ? "An event that triggers a function starts one."
                : "Change the filters to see others."
            }
            docs={text === "" ? "start" : undefined}
          />
        )
      ) : (
        <Rows
          list={list}
          chosen={chosen.value}
          active={active.value}
          onChoose={selects ? choose : undefined}
        />
      )}
    </div>
  );
}

/** A list that could not be read says why below. */
function aboutList(list: RunList): string {
  if (list.isRead.value) return `${totalText(list)} · newest first`;
  return list.error.value === undefined ? "Reading…" : "";
}

function totalText({ total, rows, hasMore, isTotalCut }: RunList): string {
  const known = Math.max(total.value, rows.value.length);
  return `${count(known)}${hasMore.value && isTotalCut.value ? "+" : ""} ${known === 1 ? "run" : "runs"}`;
}

function Rows(props: {
  list: RunList;
  chosen: ReadonlySet<string>;
  active: number;
  onChoose: ((id: string) => void) | undefined;
}) {
  const { list, chosen, active, onChoose } = props;
  const rows = list.rows.value;
  const isNarrow = useNarrow();
  const now = useTick(1_000, true);
  const isReading = !list.isRead.value || (list.hasMore.value && !list.isPaused.value);
  const places = isReading ? placesAhead : 0;
  return (
    <div class={`runs ${onChoose ? "selects" : ""}`}>
      {!isNarrow && <Head selects={onChoose !== undefined} />}
      <VirtualList
        label="Rows of runs"
        total={rows.length + places}
        rowHeight={isNarrow ? narrowRowHeight : rowHeight}
        active={active}
        onSight={(_, last) => {
          list.seen(last);
          if (last > rows.length - aheadRows && !list.isPaused.value) void list.more();
        }}
        keyOf={(index) => rows[index]?.id ?? `place-${index}`}
        row={(index) => {
          const run = rows[index];
          if (!run) return <div class="run-row place" aria-hidden="true" />;
          const isChosen = chosen.has(run.id);
          return (
            <Row
              {...{ run, isChosen, now: isOver(run.status) ? 0 : now }}
              isActive={index === active}
              onChoose={onChoose}
            />
          );
        }}
      />
    </div>
  );
}

/** A frame says which attempt it is, not how many there may be. */
const attemptText = ({ attempt, maxAttempts }: RunView): string =>
  attempt === 0 ? "–" : maxAttempts === 0 ? `${attempt}` : `${attempt}/${maxAttempts}`;

/** What the columns are, for the eye: each row says it all by itself. */
const Head = ({ selects }: { selects: boolean }) => (
  <div class="run-row run-head" aria-hidden="true">
    {selects && <span />}
    <span>Status</span>
    <span>Function</span>
    <span>Event</span>
    <span>Run</span>
    <span class="number">Attempt</span>
    <span class="number">Duration</span>
    <span class="number">Created</span>
  </div>
);

function Row(props: {
  run: RunView;
  now: number;
  isChosen: boolean;
  isActive: boolean;
  onChoose: ((id: string) => void) | undefined;
}) {
  const { run, now, isChosen, isActive, onChoose } = props;
  const lasts = lastsMs(run, now);
  return (
    <div class={`run-row ${isActive ? "active" : ""} ${isChosen ? "chosen" : ""}`} data-run={run.id}>
      {onChoose && (
        <span class="run-check">
          <input
            type="checkbox"
            checked={isChosen}
            aria-label={`Select run ${run.id}`}
            onChange={() => onChoose(run.id)}
          />
        </span>
      )}
      <span class="run-status">
        <Status of={run.status} pauseReason={run.pauseReason} phase={run.phase} />
      </span>
      <span class="run-function">
        <Text of={run.functionId} href={hrefOf(["runs", run.id])} />
      </span>
      <span class="run-event">
        <Text of={run.eventName} in="span" />
        {run.status === "failed" && run.error && <Text of={run.error.message} in="span" class="run-error" />}
      </span>
      <code class="run-id">{run.id}</code>
      <span class="run-attempt number">{attemptText(run)}</span>
      <span class="run-duration number">{lasts === undefined ? "–" : lasted(lasts)}</span>
      <span class="run-created number" title={dateTime(run.createdAt)}>
        <When at={run.createdAt} />
      </span>
    </div>
  );
}
