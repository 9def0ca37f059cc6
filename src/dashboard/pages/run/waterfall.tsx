import { useMemo } from "preact/hooks";
import { duration, lasted } from "../../lib/format.ts";
import { hrefOf } from "../../lib/router.ts";
import type { Moment, RunView, StepView } from "../../lib/runs.ts";
import { Text } from "../../ui/basics.tsx";
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
