import { useState } from "preact/hooks";
import { counted, dateTime, duration, instantOf } from "../../lib/format.ts";
import { useFollowed, useLoaded } from "../../lib/hooks.ts";
import { address, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { attempt } from "../../lib/toasts.ts";
import { Button, Empty, Facts, Failure, Id, Page, Section, Tabs, Text, When } from "../../ui/basics.tsx";
import { JsonView } from "../../ui/json-view.tsx";
import { useOne } from "../../ui/resource.tsx";
import { lookOf, Status } from "../../ui/status.tsx";
import {
  actionWords,
  getRepair,
  isEnded,
  listItems,
  outcomes,
  Progress,
  type RepairData,
  type RepairItemData,
  restingMs,
  steerRepair,
  totalOf,
  workingMs,
} from "./repairs.tsx";

export function RepairPage() {
  const { value: repair, reload, unread } = useOne({ one: "repair", all: "repairs" }, getRepair);
  useFollowed(reload, { list: "repairs", everyMs: repair && !isEnded(repair) ? workingMs : restingMs });
  if (!repair) return unread;
  const ended = instantOf(repair.ended_at);
  const began = instantOf(repair.created_at);
  return (
    <Page
      title={
        <>
          {`${actionWords[repair.action] ?? repair.action} ${counted(totalOf(repair), "run")}`}
          <Status of={repair.status} />
        </>
      }
      about={<Id of={repair.id} what="Repair id" />}
      actions={may("runs:cancel") && <RepairActions repair={repair} onDone={reload} />}
    >
      <Facts
        of={[
          ["Started", began === undefined ? "–" : dateTime(began)],
          ["By", <Text key="by" of={repair.started_by} />],
          ended === undefined && ["Phase", repair.phase === "select" ? "selecting runs" : "working"],
          ended !== undefined && began !== undefined && ["Took", duration(ended - began)],
          repair.reason && ["Reason", <Text key="reason" of={repair.reason} />],
          repair.note && ["Note", <Text key="note" of={repair.note} />],
        ]}
      />
      <div class="progress-large">
        <Progress of={repair} />
      </div>
      <Items repair={repair} />
      <Section title="What was asked for">
        <JsonView value={repair.request} what="request" />
      </Section>
    </Page>
  );
}

function RepairActions({ repair, onDone }: { repair: RepairData; onDone: () => void }) {
  if (isEnded(repair) || repair.status === "stopping") return null;
  const steer = (verb: "pause" | "continue" | "stop", done: string) => async () => {
    if (await attempt(() => steerRepair(repair.id, verb), done)) onDone();
  };
  return (
    <>
      {repair.status === "paused" ? (
        <Button kind="primary" icon="play" onClick={() => void steer("continue", "The repair goes on")()}>
          Continue
        </Button>
      ) : (
        <Button icon="pause" text="Pause" onClick={() => void steer("pause", "The repair is held")()} />
      )}
      <Button icon="stop" text="Stop" onClick={() => void steer("stop", "The repair is stopped")()} />
    </>
  );
}

function Items({ repair }: { repair: RepairData }) {
  const outcome = address.value.query.get("outcome") ?? "";
  const [pagesShown, setPagesShown] = useState(1);
  const size = JSON.stringify(repair.counts);
  const { value, error, reload } = useLoaded(
    async (signal) => {
      const items: RepairItemData[] = [];
      let cursor = "";
      for (let page = 0; page < pagesShown; page++) {
        const found = await listItems(repair.id, { outcome, cursor }, signal);
        items.push(...found.items);
        cursor = found.next_cursor;
        if (cursor === "") break;
      }
      return { items, hasMore: cursor !== "" };
    },
    [repair.id, outcome, pagesShown, size],
  );
  const to = (name: string) => hrefOf(["repairs", repair.id], { outcome: name });
  const tabs = [
    { name: "All", href: to(""), isShown: outcome === "", count: totalOf(repair) },
    ...outcomes
      .filter((one) => repair.counts[one] > 0)
      .map((one) => ({
        ...{ name: lookOf(one).word, href: to(one), isShown: outcome === one, count: repair.counts[one] },
      })),
  ];
  return (
    <>
      <Tabs label="Runs by outcome" tabs={tabs} />
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {value?.items.length === 0 && <Empty title="No runs" says="None matched what was asked for." />}
      <ul class="plain-list">
        {value?.items.map((item) => (
          <li key={item.run_id}>
            <Status of={item.outcome} />
            <a href={hrefOf(["runs", item.run_id])}>
              <code>{item.run_id}</code>
            </a>
            <Text of={item.error ?? item.function_id} in="span" class="grows" />
            <span class="faint">
              <When at={item.at} />
            </span>
          </li>
        ))}
      </ul>
      {value?.hasMore && <Button onClick={() => setPagesShown(pagesShown + 1)}>Show more</Button>}
    </>
  );
}
