import type { ConsumerGroup } from "../../../gen/svc/v1/pubsub_pb.ts";
import { rpc } from "../../lib/api.ts";
import { count, instantOf } from "../../lib/format.ts";
import { useFollowed, usePages } from "../../lib/hooks.ts";
import type { InJson } from "../../lib/messages.ts";
import type { RowsPage } from "../../lib/pages.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { Text } from "../../ui/basics.tsx";
import { Choice, type DialogEnds, Field, FormDialog, useFields } from "../../ui/dialog.tsx";
import { ResourceList } from "../../ui/resource.tsx";
import { Status } from "../../ui/status.tsx";
import { Bad } from "../../ui/table.tsx";

/** A consumer group as the pages show it. */
export type GroupView = ReturnType<typeof groupOf>;

/** `ACK_MODE_MANUAL` as `manual`. */
const wordOf = (text: string | undefined): string => (text ?? "").replace(/^.*_/, "").toLowerCase();

const groupOf = (m: InJson<ConsumerGroup>) => ({
  ...{ namespace: m.namespace ?? "", name: m.name ?? "" },
  ...{ pattern: m.pattern ?? "", filter: m.filterExpr ?? "" },
  ...{ status: wordOf(m.status), ackMode: wordOf(m.ackMode), backpressure: wordOf(m.backpressure) },
  ...{ maxInflight: m.maxInflight ?? 0, maxRedeliveries: m.maxRedeliveries ?? 0 },
  ...{ redeliverDelayMs: m.redeliverDelayMs ?? 0, position: m.position ?? "0" },
  ...{ members: m.memberCount ?? 0, held: m.inflightCount ?? 0 },
  ...{ dropped: Number(m.droppedCount ?? 0), givenUp: Number(m.givenUpCount ?? 0) },
  createdAt: instantOf(m.createdAt),
});

async function listGroups(cursor: string, signal: AbortSignal): Promise<RowsPage<GroupView>> {
  const asked = { limit: 100, cursor };
  const { groups = [], nextCursor } = await rpc("PubSubService", "ListConsumerGroups", asked, signal);
  return { rows: groups.map(groupOf), next: nextCursor || undefined };
}

/** A group with what it is about to do. */
export type WholeGroup = Awaited<ReturnType<typeof getGroup>>;

export async function getGroup(namespace: string, name: string, signal: AbortSignal) {
  const m = await rpc("PubSubService", "GetConsumerGroup", { namespace, name, withDeliveries: true }, signal);
  return {
    group: groupOf(m),
    behind: Number(m.behind ?? 0),
    members: (m.members ?? []).map(({ consumerId = "", clientId = "", joinedAt }) => ({
      ...{ consumer: consumerId, client: clientId, joinedAt: instantOf(joinedAt) },
    })),
    deliveries: (m.deliveries ?? []).map((one) => ({
      ...{ eventId: one.eventId ?? "", position: one.sequence ?? "", attempt: one.attempt ?? 0 },
      ...{ consumer: one.consumerId ?? "", dueAt: instantOf(one.dueAt) },
    })),
  };
}

/** What is logged moves how far a group is behind, and makes no frame of it. */
export const readMs = 5_000;

export const pathOf = ({ namespace, name }: Pick<GroupView, "namespace" | "name">): string =>
  hrefOf(["groups", namespace, name]);

export function GroupsPage() {
  const read = usePages(listGroups, []);
  useFollowed(read.reload, { frames: "system.group.>", everyMs: readMs });
  return (
    <ResourceList
      title="Consumer groups"
      about="Programs that share the deliveries of a pattern"
      makes={{ text: "Create…", icon: "groups", needs: "events:emit", dialog: GroupDialog }}
      read={read}
      keyOf={({ namespace, name }) => `${namespace} ${name}`}
      empty="No consumer groups"
      docs="real-time#consumer-groups"
      says="A subscription that names a group makes it."
      columns={[
        {
          name: "Group",
          of: (group) => (
            <>
              <Text of={group.name} href={pathOf(group)} />
              <Text of={group.namespace} in="span" class="under" />
            </>
          ),
        },
        { name: "Status", of: ({ status }) => <Status of={status} /> },
        { name: "Gets", of: ({ pattern }) => <Text of={pattern} in="code" /> },
        { name: "Members", isNumber: true, of: ({ members }) => count(members) },
        { name: "Held", isNumber: true, of: ({ held }) => count(held) },
        { name: "Given up", isNumber: true, of: ({ givenUp }) => <Bad of={givenUp} /> },
        { name: "Position", isNumber: true, of: ({ position }) => count(Number(position)) },
      ]}
    />
  );
}

const pressures = [
  ["BACKPRESSURE_MODE_BUFFER", "Wait for room"],
  ["BACKPRESSURE_MODE_BLOCK", "Wait for the slowest member"],
  ["BACKPRESSURE_MODE_DROP", "Pass over what has no room"],
] as const;

/** Makes a group, or changes what may be changed of one. */
export function GroupDialog({ of, onClose }: DialogEnds & { of?: GroupView }) {
  const [typed, field] = useFields({
    ...{ name: of?.name ?? "", pattern: of?.pattern ?? "", filter: of?.filter ?? "" },
    ackMode: `ACK_MODE_${(of?.ackMode ?? "manual").toUpperCase()}`,
    pressure: `BACKPRESSURE_MODE_${(of?.backpressure ?? "buffer").toUpperCase()}`,
    ...{ most: `${of?.maxInflight ?? 100}`, again: `${of?.maxRedeliveries ?? 3}` },
    delay: `${of?.redeliverDelayMs ?? 5_000}`,
  });
  const submit = async () => {
    const { name, pattern, filter, ackMode, pressure, most, again, delay } = typed;
    const settings = {
      ...{ pattern, filterExpr: filter, ackMode, backpressure: pressure },
      ...{ maxInflight: Number(most), maxRedeliveries: Number(again), redeliverDelayMs: Number(delay) },
    };
    if (of) {
      const group = { namespace: of.namespace, name: of.name, ...settings };
      await rpc("PubSubService", "UpdateConsumerGroup", {
        group,
        updateMask: Object.keys(settings).join(","),
      });
      return "Group changed";
    }
    const made = await rpc("PubSubService", "CreateConsumerGroup", { name, ...settings });
    go(pathOf({ name, ...made, namespace: made.namespace ?? "" }));
    return "Group created";
  };
  return (
    <FormDialog
      title={of ? "Change the group" : "Create a consumer group"}
      submit={of ? "Change" : "Create"}
      onSubmit={submit}
      onClose={onClose}
    >
      {!of && <Field label="Name" isRequired {...field("name")} />}
      <Field
        label="Pattern"
        isRequired
        isCode
        {...field("pattern")}
        hint="What it gets: events:order.*, entity:cart.> or topic:prices.*"
      />
      <Field label="Filter in CEL" isCode {...field("filter")} hint="Empty takes all" />
      <Choice
        label="Acknowledged"
        {...field("ackMode")}
        options={[
          ["ACK_MODE_MANUAL", "By the consumer"],
          ["ACK_MODE_AUTO", "By being sent"],
        ]}
      />
      <Choice label="When its members are full" {...field("pressure")} options={pressures} />
      <Field label="Deliveries held at most" type="number" isRequired {...field("most")} />
      <Field label="Redeliveries at most" type="number" isRequired {...field("again")} />
      <Field
        label="Redelivered after, in milliseconds"
        type="number"
        isRequired
        {...field("delay")}
        hint="Also how long a consumer may take to acknowledge."
      />
    </FormDialog>
  );
}
