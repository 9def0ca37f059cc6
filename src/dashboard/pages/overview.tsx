import type { Static } from "@sinclair/typebox";
import { useEffect, useRef } from "preact/hooks";
import type { OverviewShape } from "../../domain/cluster/overview/operations.ts";
import { rest } from "../lib/api.ts";
import { count, duration, plain } from "../lib/format.ts";
import { useLive, useLoaded, useNet } from "../lib/hooks.ts";
import { hrefOf } from "../lib/router.ts";
import { may } from "../lib/session.ts";
import { Empty, Failure, Page, Section, Text, Tile, When } from "../ui/basics.tsx";
import { RunStatus } from "../ui/status.tsx";
import { Scrolling } from "../ui/table.tsx";
import { Ends } from "./ends.tsx";
import { Troubles } from "./functions/function.tsx";

type OverviewData = Static<typeof OverviewShape>;

const readMs = 5_000;

const rateRows = [
  ["Events", "events", undefined],
  ["Runs started", "runs_started", ""],
  ["Completed", "runs_completed", "completed"],
  ["Failed", "runs_failed", "failed"],
  ["Cancelled", "runs_cancelled", "cancelled"],
] as const;

function Rates({ data }: { data: OverviewData }) {
  const spans = [
    ["Last minute", data.last_minute, "1m"],
    ["Last hour", data.last_hour, "1h"],
    ["Last day", data.last_day, "24h"],
  ] as const;
  return (
    <Scrolling label="Rates">
      <table class="table">
        <thead>
          <tr>
            <th scope="col">
              <span class="visually-hidden">What</span>
            </th>
            {spans.map(([name]) => (
              <th key={name} scope="col" class="number">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rateRows.map(([name, field, status]) => (
            <tr key={field}>
              <th scope="row">{name}</th>
              {spans.map(([span, rates, since]) => (
                <td key={span} class="number">
                  <a href={status === undefined ? hrefOf(["events"]) : hrefOf(["runs"], { status, since })}>
                    {count(rates[field])}
                  </a>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      <p class="faint">
        Runs are counted by their end; a number leads to those that were created in that time.
      </p>
    </Scrolling>
  );
}

function Cluster({ data: { cluster, integrity, version, uptime_seconds } }: { data: OverviewData }) {
  const { nodes, leaders = [], database, bus } = cluster;
  return (
    <>
      <ul class="health">
        <li>
          <span>Database</span>
          <a class={database.status === "healthy" ? "good" : "bad"} href={hrefOf(["cluster"])}>
            {`${database.engine}, ${database.status}, ${duration(database.round_trip_ms)}`}
          </a>
        </li>
        <li>
          <span>Bus</span>
          <a class={bus.status === "connected" ? "good" : "bad"} href={hrefOf(["cluster"])}>
            {`${bus.kind}, ${bus.status}`}
          </a>
        </li>
        <li>
          <span>Integrity</span>
          {integrity ? (
            <a class={integrity.balanced ? "good" : "bad"} href={hrefOf(["integrity"])}>
              {integrity.balanced ? "balanced, checked " : "not balanced, checked "}
              <When at={integrity.checked_at} />
            </a>
          ) : (
            <a class="faint" href={hrefOf(["integrity"])}>
              not checked yet
            </a>
          )}
        </li>
        <li>
          <span>This node</span>
          <a href={hrefOf(["cluster"])}>{`svc ${plain(version)}, up ${duration(uptime_seconds * 1_000)}`}</a>
        </li>
        {nodes.map((node, index) => {
          const duties = leaders.filter(({ node_id }) => node_id === node.id).length;
          return (
            <li key={node.id ?? index}>
              <span>{node.id ? <Text of={node.id} /> : "Node"}</span>
              <a class={node.status === "up" ? "good" : "warn"} href={hrefOf(["cluster"])}>
                {node.status}
                {duties > 0 && `, leads ${duties === 1 ? "one duty" : `${duties} duties`}`}
              </a>
            </li>
          );
        })}
      </ul>
      {cluster.issues.map((issue) => (
        <Text key={issue} of={issue} in="p" class="issue" />
      ))}
    </>
  );
}

export function OverviewPage() {
  const {
    value: data,
    error,
    reload,
  } = useLoaded((signal) => rest<OverviewData>("/api/v1/overview", { signal }), []);
  const asked = useRef<{ at: number; timer?: ReturnType<typeof setTimeout> }>({
    at: Number.NEGATIVE_INFINITY,
  });
  useEffect(() => () => clearTimeout(asked.current.timer), []);
  /** At once where it was quiet; what comes close behind is read together. */
  const readSoon = () => {
    const { current } = asked;
    if (current.timer !== undefined) return;
    const wait = Math.max(0, current.at + readMs - performance.now());
    current.timer = setTimeout(() => {
      asked.current = { at: performance.now() };
      reload();
    }, wait);
  };
  useNet(reload, readMs);
  useLive("system.run.*.*", {
    onFrame: readSoon,
    onBack: reload,
  });
  if (!data)
    return error === undefined ? (
      <p class="page faint">Reading…</p>
    ) : (
      <Page title="Overview">
        <Failure error={error} onRetry={reload} />
      </Page>
    );
  const { runs, last_hour: hour } = data;
  return (
    <Page title="Overview" about="What this environment does now">
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      <div class="tiles">
        <Tile
          name="Active runs"
          value={`${count(runs.active)}${runs.active_capped ? "+" : ""}`}
          note="not over yet"
          href={hrefOf(["runs"], { status: "waiting_for_capacity,running,waiting,paused" })}
        />
        <Tile
          name="Oldest waiting"
          value={runs.oldest_waiting_ms === undefined ? "–" : duration(runs.oldest_waiting_ms)}
          note="for a worker"
          tone={(runs.oldest_waiting_ms ?? 0) > 60_000 ? "warn" : ""}
          href={hrefOf(["runs"], { status: "waiting_for_capacity" })}
        />
        <Tile
          name="Failed"
          value={count(hour.runs_failed)}
          note="ended in the last hour"
          title="Failed runs that were created in the last hour"
          tone={hour.runs_failed > 0 ? "bad" : ""}
          href={hrefOf(["runs"], { status: "failed", since: "1h" })}
        />
        <Tile name="Events" value={count(hour.events)} note="in the last hour" href={hrefOf(["events"])} />
        <Tile
          name="Workers"
          value={count(data.workers.connected)}
          note="connected"
          {...(may("functions:read") && { href: hrefOf(["workers"]) })}
        />
        <Tile
          name="Functions"
          value={count(data.functions.active ?? 0)}
          note="active"
          {...(may("functions:list") && { href: hrefOf(["functions"]) })}
        />
      </div>
      <Ends />
      <div class="columns">
        <div>
          <Section title="Failing in the last day">
            <Troubles />
          </Section>
          <Section title="Rates">
            <Rates data={data} />
          </Section>
        </div>
        <div>
          <Section title="Active runs by status">
            <ByStatus of={runs.by_status} />
          </Section>
          <Section title="Cluster">
            <Cluster data={data} />
          </Section>
        </div>
      </div>
    </Page>
  );
}

function ByStatus({ of }: { of: Record<string, number> }) {
  const entries = Object.entries(of).filter(([, number]) => number > 0);
  if (entries.length === 0)
    return (
      <Empty title="No active runs">
        <p>
          {"Emit an event that triggers a "}
          <a href={hrefOf(["functions"])}>function</a>
          {"."}
        </p>
      </Empty>
    );
  return (
    <ul class="plain-list">
      {entries.map(([status, number]) => (
        <li key={status}>
          <a class="spread" href={hrefOf(["runs"], { status })}>
            <RunStatus of={status} />
            <span class="number">{count(number)}</span>
          </a>
        </li>
      ))}
    </ul>
  );
}
