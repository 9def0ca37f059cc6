import { useEffect, useRef } from "preact/hooks";
import { type FlowEdge, type FlowEnd, type FlowKind, readFlow } from "../../lib/flow.ts";
import { count, counted, plain } from "../../lib/format.ts";
import { useFollowed, useLive, useLoaded, useTick } from "../../lib/hooks.ts";
import { useLayout } from "../../lib/layout.ts";
import { address, hrefOf, setQuery } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { aboutRead, Empty, Failure, Page, Section, Text } from "../../ui/basics.tsx";
import { Select } from "../../ui/dialog.tsx";
import { Icon, type IconName } from "../../ui/icons.tsx";
import { Table } from "../../ui/table.tsx";

const endKey = ({ kind, name }: FlowEnd): string => `${kind} ${name}`;
const edgeKey = ({ from, verb, to }: FlowEdge): string => `${endKey(from)} ${verb} ${endKey(to)}`;

const tickMs = 1_000;
/** How long a line shows that something went along it. */
const movesMs = 2_500;

interface Traffic {
  /** Whether something goes along the line now. */
  moves(edge: FlowEdge): boolean;
  /** Runs that it started since the page was opened. */
  started(edge: FlowEdge): number | undefined;
}

/** Traffic as it happens: starts of runs by their frames, everything else by how its count grew. */
function useTraffic(edges: readonly FlowEdge[]): Traffic {
  const { current: seen } = useRef({
    counts: new Map<string, number>(),
    starts: new Map<string, number>(),
    movedAt: new Map<string, number>(),
    keys: new Set<string>(),
  });
  const now = useTick(tickMs, true);
  useEffect(() => {
    seen.keys = new Set(edges.map(edgeKey));
    for (const edge of edges) {
      if (edge.count === undefined) continue;
      const key = edgeKey(edge);
      const before = seen.counts.get(key);
      if (before !== undefined && edge.count > before) seen.movedAt.set(key, Date.now());
      seen.counts.set(key, edge.count);
    }
  }, [edges]);
  useLive(may("runs:read") ? "system.run.*.created" : "", {
    onFrame({ data }) {
      const { eventName, functionId } = data as { eventName: string; functionId: string };
      const [from, to] = [
        { kind: "event", name: eventName },
        { kind: "function", name: functionId },
      ] as const;
      const key = edgeKey({ from, verb: "starts", to, count: undefined });
      // Events that a wildcard or an invocation stands for have no line of their own.
      if (!seen.keys.has(key)) return;
      seen.starts.set(key, (seen.starts.get(key) ?? 0) + 1);
      seen.movedAt.set(key, Date.now());
    },
  });
  return {
    moves: (edge) => now - (seen.movedAt.get(edgeKey(edge)) ?? Number.NEGATIVE_INFINITY) < movesMs,
    started: (edge) => seen.starts.get(edgeKey(edge)),
  };
}

const spans = [
  ["1", "Last hour"],
  ["24", "Last day"],
  ["168", "Last week"],
] as const;

/** Lines that are drawn: those along which most happened. All stand in the list. */
const linesDrawn = 150;
const listed = 500;

const kinds: Record<FlowKind, { icon: IconName; word: string; href: (name: string) => string }> = {
  function: { icon: "functions", word: "Function", href: (name) => hrefOf(["functions", name]) },
  event: { icon: "events", word: "Event", href: (name) => hrefOf(["events"], { pattern: name }) },
  topic: { icon: "topics", word: "Topic", href: (name) => hrefOf(["topics", name]) },
  stream: { icon: "streams", word: "Streams", href: (type) => hrefOf(["streams"], { type }) },
  webhook: { icon: "incoming", word: "Webhook", href: () => hrefOf(["webhooks-in"]) },
  schedule: { icon: "clock", word: "Schedule", href: () => hrefOf(["schedules"]) },
};

/** What leads to what, from schedules and webhooks to functions, with the traffic between them. */
export function MapPage() {
  const hours = address.value.query.get("hours") ?? "24";
  const { value, error, reload } = useLoaded((signal) => readFlow(hours, signal), [hours]);
  useFollowed(reload, { frames: "system.function.>" });
  const edges = value?.edges ?? [];
  return (
    <Page
      title="Flow map"
      about={aboutRead(
        { value, error },
        ({ isCut }) => counted(edges.length, "line") + (isCut ? ", and more" : ""),
      )}
      actions={
        <Select
          label="Traffic of"
          value={hours}
          options={spans}
          onInput={(asked) => setQuery({ hours: asked })}
        />
      }
    >
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {value && edges.length === 0 && (
        <Empty
          title="Nothing flows yet"
          says="Functions that start on events, emit and invoke are drawn here."
        />
      )}
      {edges.length > 0 && (
        <>
          <Drawing edges={edges.slice(0, linesDrawn)} />
          <p class="hint">
            A number on a line says how often, in the time that is chosen above; +1, how often a start was
            seen since this page was opened.{" "}
            {edges.length > linesDrawn && `Drawn: the ${linesDrawn} lines along which most happened.`}
          </p>
          <Section title="Every line">
            <Lines edges={edges.slice(0, listed)} />
          </Section>
        </>
      )}
    </Page>
  );
}

const box = { width: 190, height: 32 };
const bendBack = 100;
const lineWidthMax = 7;

function Drawing({ edges }: { edges: readonly FlowEdge[] }) {
  const ends = new Map(edges.flatMap(({ from, to }) => [from, to]).map((end) => [endKey(end), end]));
  const lines = edges.map(({ from, to }) => ({ from: endKey(from), to: endKey(to) }));
  const laid = useLayout({ ids: [...ends.keys()], lines, box });
  const traffic = useTraffic(edges);
  if (!laid) return <p class="hint">Drawing…</p>;
  if (laid === "lost") return <p class="hint">The drawing cannot be made: load the page again.</p>;
  const { places, width, height } = laid;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and keys must reach that
    <section class="map" aria-label="Drawing; the list below says the same" tabIndex={0}>
      <div class="map-inside" style={{ width: `${width}px`, height: `${height}px` }}>
        <svg width={width} height={height} aria-hidden="true">
          {edges.map((edge) => {
            const [from, to] = [places[endKey(edge.from)], places[endKey(edge.to)]];
            const key = edgeKey(edge);
            return (
              from &&
              to && (
                <Line
                  key={key}
                  of={edge}
                  moves={traffic.moves(edge)}
                  started={traffic.started(edge)}
                  {...{ from, to }}
                />
              )
            );
          })}
        </svg>
        {[...ends].map(([key, end]) => places[key] && <Node key={key} of={end} at={places[key]} />)}
      </div>
    </section>
  );
}

interface Spot {
  x: number;
  y: number;
}

interface LineProps {
  of: FlowEdge;
  moves: boolean;
  started: number | undefined;
  from: Spot;
  to: Spot;
}

function Line({ of, moves, started, from, to }: LineProps) {
  const leadsBack = to.x <= from.x;
  const start = { x: from.x + box.width, y: from.y + box.height / 2 };
  const end = { x: to.x, y: to.y + box.height / 2 };
  const bend = leadsBack ? bendBack : (end.x - start.x) / 2;
  const path = `M${start.x} ${start.y}C${start.x + bend} ${start.y} ${end.x - bend} ${end.y} ${end.x} ${end.y}`;
  const said = of.count !== undefined ? count(of.count) : started !== undefined ? `+${count(started)}` : "";
  const thickness = of.count === undefined ? 1 : Math.min(lineWidthMax, 1.5 + Math.log10(of.count + 1));
  return (
    <g class={`map-line${of.count === undefined ? " idle" : ""}${moves ? " moves" : ""}`}>
      <path d={path} stroke-width={thickness} />
      {said !== "" && (
        <text x={(start.x + end.x) / 2} y={(start.y + end.y) / 2 - 4}>
          {said}
        </text>
      )}
    </g>
  );
}

function Node({ of, at }: { of: FlowEnd; at: Spot }) {
  const { icon, word, href } = kinds[of.kind];
  const style = { left: `${at.x}px`, top: `${at.y}px`, width: `${box.width}px`, height: `${box.height}px` };
  const title = `${word} ${plain(of.name)}`;
  return (
    <a class={`map-node ${of.kind}`} href={href(of.name)} {...{ style, title }}>
      <Icon name={icon} size={14} />
      <Text of={of.name} in="span" class="map-name" />
    </a>
  );
}

function End({ of }: { of: FlowEnd }) {
  const { word, href } = kinds[of.kind];
  return (
    <>
      <span class="faint">{`${word} `}</span>
      <Text of={of.name} href={href(of.name)} />
    </>
  );
}

const Lines = ({ edges }: { edges: readonly FlowEdge[] }) => (
  <Table
    rows={edges}
    label="Lines"
    keyOf={edgeKey}
    columns={[
      { name: "From", of: ({ from }) => <End of={from} /> },
      { name: "Does", of: ({ verb }) => verb },
      { name: "To", of: ({ to }) => <End of={to} /> },
      {
        name: "Times",
        isNumber: true,
        of: ({ count: times }) =>
          times === undefined ? <span class="faint">not counted</span> : count(times),
      },
    ]}
  />
);
