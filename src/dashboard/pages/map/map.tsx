import { useMemo } from "preact/hooks";
import { type FlowEdge, type FlowEnd, type FlowKind, readFlow } from "../../lib/flow.ts";
import { count, counted, plain } from "../../lib/format.ts";
import { useLive, useLoaded, useNet } from "../../lib/hooks.ts";
import { layOut } from "../../lib/layout.ts";
import { address, hrefOf, setQuery } from "../../lib/router.ts";
import { Empty, Failure, PageHead, Section, Text } from "../../ui/basics.tsx";
import { Icon, type IconName } from "../../ui/icons.tsx";
import { Table } from "../../ui/table.tsx";

const spans = [
  ["1", "Last hour"],
  ["24", "Last day"],
  ["168", "Last week"],
] as const;

const readMs = 30_000;
/** Lines that are drawn: those along which most happened. All stand in the list. */
const linesDrawn = 150;
const listed = 500;

const kinds: Record<FlowKind, { icon: IconName; word: string; href: (name: string) => string }> = {
  function: { icon: "functions", word: "Function", href: (name) => hrefOf(["functions", name]) },
  event: { icon: "events", word: "Event", href: (name) => hrefOf(["events"], { pattern: name }) },
  topic: { icon: "topics", word: "Topic", href: (name) => hrefOf(["topics", name]) },
  stream: { icon: "streams", word: "Streams", href: (type) => hrefOf(["streams"], { type }) },
  webhook: { icon: "incoming", word: "Webhook", href: () => hrefOf(["webhooks-in"]) },
};

const keyOf = ({ kind, name }: FlowEnd): string => `${kind} ${name}`;

/** What leads to what: events, functions, topics, streams and webhooks, with the traffic between them. */
export function MapPage() {
  const hours = address.value.query.get("hours") ?? "24";
  const { value, error, reload } = useLoaded((signal) => readFlow(hours, signal), [hours]);
  useLive("system.function.>", { onFrame: reload, onBack: reload });
  useNet(reload, readMs);
  const edges = value?.edges ?? [];
  return (
    <div class="page">
      <PageHead
        title="Flow map"
        about={value ? counted(edges.length, "line") + (value.isCut ? ", and more" : "") : "Reading…"}
        actions={
          <select
            aria-label="Traffic of"
            value={hours}
            onChange={({ currentTarget: { value: asked } }) => setQuery({ hours: asked })}
          >
            {spans.map(([span, word]) => (
              <option key={span} value={span}>
                {word}
              </option>
            ))}
          </select>
        }
      />
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {value && edges.length === 0 && (
        <Empty title="Nothing flows yet">
          <p>Functions that start on events, emit and invoke are drawn here.</p>
        </Empty>
      )}
      {edges.length > 0 && (
        <>
          <Drawing edges={edges.slice(0, linesDrawn)} />
          {edges.length > linesDrawn && (
            <p class="hint">{`Drawn: the ${linesDrawn} lines along which most happened.`}</p>
          )}
          <Section title="Every line">
            <Lines edges={edges.slice(0, listed)} />
          </Section>
        </>
      )}
    </div>
  );
}

const nodeWidth = 190;
const nodeHeight = 32;
const layerGap = 100;
const rowGap = 14;
const lineWidthMax = 7;

function Drawing({ edges }: { edges: readonly FlowEdge[] }) {
  const shape = JSON.stringify(edges.map(({ from, to }) => [keyOf(from), keyOf(to)]));
  const drawing = useMemo(() => {
    const ends = new Map(edges.flatMap(({ from, to }) => [from, to]).map((end) => [keyOf(end), end]));
    const lines = edges.map(({ from, to }) => ({ from: keyOf(from), to: keyOf(to) }));
    const laid = layOut([...ends.keys()], lines);
    const rows = Math.max(
      ...Map.groupBy(laid, ({ layer }) => layer)
        .values()
        .map((all) => all.length),
    );
    const sizes = Map.groupBy(laid, ({ layer }) => layer);
    const places = new Map(
      laid.map(({ id, layer, place }) => {
        const indent = ((rows - sizes.get(layer)!.length) * (nodeHeight + rowGap)) / 2;
        return [id, { x: layer * (nodeWidth + layerGap), y: indent + place * (nodeHeight + rowGap) }];
      }),
    );
    return {
      ...{ ends, places },
      width: sizes.size * (nodeWidth + layerGap) - layerGap,
      height: rows * (nodeHeight + rowGap) - rowGap,
    };
  }, [shape]);
  const { ends, places, width, height } = drawing;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and keys must reach that
    <section class="map" aria-label="Drawing; the list below says the same" tabIndex={0}>
      <div class="map-inside" style={{ width: `${width}px`, height: `${height}px` }}>
        <svg width={width} height={height} aria-hidden="true">
          {edges.map((edge) => (
            <Line
              key={`${keyOf(edge.from)} ${edge.verb} ${keyOf(edge.to)}`}
              of={edge}
              from={places.get(keyOf(edge.from))!}
              to={places.get(keyOf(edge.to))!}
            />
          ))}
        </svg>
        {[...ends].map(([key, end]) => (
          <Node key={key} of={end} at={places.get(key)!} />
        ))}
      </div>
    </section>
  );
}

interface Spot {
  x: number;
  y: number;
}

function Line({ of, from, to }: { of: FlowEdge; from: Spot; to: Spot }) {
  const leadsBack = to.x <= from.x;
  const start = { x: from.x + nodeWidth, y: from.y + nodeHeight / 2 };
  const end = { x: to.x, y: to.y + nodeHeight / 2 };
  const bend = leadsBack ? layerGap : (end.x - start.x) / 2;
  const path = `M${start.x} ${start.y}C${start.x + bend} ${start.y} ${end.x - bend} ${end.y} ${end.x} ${end.y}`;
  const thickness = of.count === undefined ? 1 : Math.min(lineWidthMax, 1.5 + Math.log10(of.count + 1));
  return (
    <g class={of.count === undefined ? "map-line idle" : "map-line"}>
      <path d={path} stroke-width={thickness} />
      {of.count !== undefined && (
        <text x={(start.x + end.x) / 2} y={(start.y + end.y) / 2 - 4}>
          {count(of.count)}
        </text>
      )}
    </g>
  );
}

function Node({ of, at }: { of: FlowEnd; at: Spot }) {
  const { icon, word, href } = kinds[of.kind];
  const style = { left: `${at.x}px`, top: `${at.y}px`, width: `${nodeWidth}px`, height: `${nodeHeight}px` };
  const title = `${word} ${plain(of.name)}`;
  return (
    <a class={`map-node ${of.kind}`} href={href(of.name)} {...{ style, title }}>
      <Icon name={icon} size={14} />
      <span class="map-name">
        <Text of={of.name} />
      </span>
    </a>
  );
}

function End({ of }: { of: FlowEnd }) {
  const { word, href } = kinds[of.kind];
  return (
    <>
      <span class="faint">{`${word} `}</span>
      <a href={href(of.name)}>
        <Text of={of.name} />
      </a>
    </>
  );
}

const Lines = ({ edges }: { edges: readonly FlowEdge[] }) => (
  <Table
    rows={edges}
    label="Lines"
    keyOf={({ from, verb, to }) => `${keyOf(from)} ${verb} ${keyOf(to)}`}
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
