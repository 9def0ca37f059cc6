import { useMemo } from "preact/hooks";
import { clockTime, duration, lasted } from "../../lib/format.ts";
import { hrefOf } from "../../lib/router.ts";
import type { Moment, RunView, StepView } from "../../lib/runs.ts";
import { Button, Text } from "../../ui/basics.tsx";
import { Icon } from "../../ui/icons.tsx";
import { VirtualList } from "../../ui/virtual-list.tsx";
import { extentOf, linesOf, type Segment, type WaterfallLine } from "./lines.ts";

const lineHeight = 32;
const linesInSight = 24;
const ticks = [0, 0.25, 0.5, 0.75, 1];

interface Extent {
  from: number;
  to: number;
}

function Bar({ segment, extent, now }: { segment: Segment; extent: Extent; now: number }) {
  const span = extent.to - extent.from;
  const end = Math.min(segment.to ?? now, extent.to);
  // A worker whose clock is ahead or behind tells of steps outside their run.
  const begin = Math.min(Math.max(segment.from, extent.from), extent.to);
  const left = (begin - extent.from) / span;
  const width = Math.max(0, (end - begin) / span);
  const isOpen = segment.to === undefined;
  return (
    <span
      class={`bar ${segment.tone} ${segment.isAhead ? "ahead" : ""} ${isOpen ? "open" : ""}`}
      style={{ left: `${left * 100}%`, width: `${width * 100}%` }}
      title={`${segment.about}, ${duration(end - segment.from)}`}
    />
  );
}

function Line(props: { line: WaterfallLine; extent: Extent; now: number; isChosen: boolean; href: string }) {
  const { line, extent, now, isChosen, href } = props;
  const first = line.segments[0];
  const last = line.segments.findLast(({ isAhead }) => !isAhead);
  const whole = first && last && (last.to ?? now) - first.from;
  const { step } = line;
  const note = step?.patchedAt === undefined ? "" : "patched";
  const content = (
    <>
      <span class={`line-name level-${Math.min(line.level, 4)}`}>
        <Icon name={line.icon} size={14} />
        <Text of={line.name} in="span" class="line-text" />
        {note && <span class="tag">{note}</span>}
      </span>
      <span class="line-bars">
        {line.segments.map((segment, index) => (
          <Bar key={index} {...{ segment, extent, now }} />
        ))}
      </span>
      <span class="line-time number">{whole === undefined ? "" : lasted(whole)}</span>
      <span class="visually-hidden">{line.about}</span>
    </>
  );
  return step ? (
    <a
      class={`line ${isChosen ? "chosen" : ""}`}
      href={href}
      data-step={step.stepId}
      aria-current={isChosen || undefined}
    >
      {content}
    </a>
  ) : (
    <div class="line">{content}</div>
  );
}

/** What the run did, over time: its attempts, steps, sleeps, waits, children and compensations. */
export function Waterfall(props: {
  run: RunView;
  steps: readonly StepView[];
  moments: readonly Moment[];
  now: number;
  chosen: string | undefined;
  query: Record<string, string | undefined>;
}) {
  const { run, steps, moments, now, chosen, query } = props;
  const lines = useMemo(() => linesOf(run, steps, moments), [run, steps, moments]);
  const extent = extentOf(run, lines, now);
  const draw = (line: WaterfallLine) => (
    <Line
      {...{ line, extent, now }}
      isChosen={line.step !== undefined && line.step.stepId === chosen}
      href={hrefOf(["runs", run.id], { ...query, step: line.step?.stepId })}
    />
  );
  return (
    <div class="waterfall">
      <div class="line axis" aria-hidden="true">
        <span class="line-name" />
        <span class="line-bars">
          {ticks.map((share) => (
            <span key={share} class="tick" style={{ left: `${share * 100}%` }}>
              {share === 0 ? "0" : duration((extent.to - extent.from) * share)}
            </span>
          ))}
        </span>
        <span class="line-time" />
      </div>
      {lines.length <= linesInSight ? (
        <ul>
          {lines.map((line) => (
            <li key={line.key}>{draw(line)}</li>
          ))}
        </ul>
      ) : (
        <VirtualList
          label="Steps over time"
          class="waterfall-lines"
          total={lines.length}
          rowHeight={lineHeight}
          keyOf={(index) => lines[index]!.key}
          row={(index) => draw(lines[index]!)}
        />
      )}
    </div>
  );
}

/** One place of the slider: an instant at which something happened, and the last thing that did. */
interface Stop {
  at: number;
  moment: Moment;
}

export function stopsOf(moments: readonly Moment[]): Stop[] {
  const byInstant = new Map<number, Moment>();
  for (const moment of moments) byInstant.set(moment.at, moment);
  return [...byInstant].sort(([one], [other]) => one - other).map(([at, moment]) => ({ at, moment }));
}

/** Moves through the run's history. `at` is undefined for now. */
export function TimeSlider(props: {
  run: RunView;
  moments: readonly Moment[];
  at: number | undefined;
  onMove: (at: number | undefined) => void;
}) {
  const { run, moments, at, onMove } = props;
  const stops = stopsOf(moments);
  if (stops.length < 2) return null;
  const last = at === undefined ? stops.length : stops.findLastIndex((stop) => stop.at <= at);
  const place = Math.max(0, last);
  const shown = at === undefined ? undefined : stops[place];
  return (
    <div class={`time ${shown ? "past" : ""}`}>
      <label class="time-label" for="time-slider">
        Time
      </label>
      <input
        id="time-slider"
        type="range"
        min={0}
        max={stops.length}
        value={place}
        aria-valuetext={shown ? `${clockTime(shown.at)}, ${shown.moment.summary}` : "now"}
        onInput={({ currentTarget }) => onMove(stops[currentTarget.valueAsNumber]?.at)}
      />
      <output class="time-shown" for="time-slider">
        {shown ? (
          <>
            <strong class="number">{clockTime(shown.at)}</strong>
            <span class="number">{`+${duration(shown.at - run.createdAt)}`}</span>
            <Text of={shown.moment.summary} />
          </>
        ) : (
          "Now"
        )}
      </output>
      {shown && <Button kind="quiet" text="Back to now" onClick={() => onMove(undefined)} />}
    </div>
  );
}
