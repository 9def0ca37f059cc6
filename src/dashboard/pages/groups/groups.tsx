import { useState } from "preact/hooks";
import { rpc } from "../../lib/api.ts";
import { count } from "../../lib/format.ts";
import { type GroupView, listGroups } from "../../lib/groups.ts";
import { useLive, useNet, usePages } from "../../lib/hooks.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { toast } from "../../lib/toasts.ts";
import { Button, Empty, PageHead, Text } from "../../ui/basics.tsx";
import { Choice, Field, FormDialog } from "../../ui/dialog.tsx";
import { Status } from "../../ui/status.tsx";
import { Bad, ReadTable } from "../../ui/table.tsx";

/** What is logged moves how far a group is behind, and makes no frame of it. */
export const readMs = 5_000;

export const pathOf = ({ namespace, name }: Pick<GroupView, "namespace" | "name">): string =>
  hrefOf(["groups", namespace, name]);

export function GroupsPage() {
  const [isMaking, setMaking] = useState(false);
  const read = usePages(listGroups, []);
  useLive("system.group.>", { onFrame: read.reload, onBack: read.reload });
  useNet(read.reload, readMs);
  return (
    <div class="page">
      <PageHead
        title="Consumer groups"
        about="Programs that share the deliveries of a pattern"
        actions={
          may("events:emit") && (
            <Button kind="primary" icon="groups" onClick={() => setMaking(true)}>
              Create…
            </Button>
          )
        }
      />
      <ReadTable
        read={read}
        keyOf={({ namespace, name }) => `${namespace} ${name}`}
        empty={<Empty title="No consumer groups" says="A subscription that names a group makes it." />}
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
      {isMaking && <GroupDialog onClose={() => setMaking(false)} />}
    </div>
  );
}

const pressures = [
  ["BACKPRESSURE_MODE_BUFFER", "Wait for room"],
  ["BACKPRESSURE_MODE_BLOCK", "Wait for the slowest member"],
  ["BACKPRESSURE_MODE_DROP", "Pass over what has no room"],
] as const;

/** Makes a group, or changes what may be changed of one. */
export function GroupDialog({ of, onClose }: { of?: GroupView; onClose: () => void }) {
  const [name, setName] = useState(of?.name ?? "");
  const [pattern, setPattern] = useState(of?.pattern ?? "");
  const [filter, setFilter] = useState(of?.filter ?? "");
  const [ackMode, setAckMode] = useState(`ACK_MODE_${(of?.ackMode ?? "manual").toUpperCase()}`);
  const [pressure, setPressure] = useState(
    `BACKPRESSURE_MODE_${(of?.backpressure ?? "buffer").toUpperCase()}`,
  );
  const [most, setMost] = useState(`${of?.maxInflight ?? 100}`);
  const [again, setAgain] = useState(`${of?.maxRedeliveries ?? 3}`);
  const [delay, setDelay] = useState(`${of?.redeliverDelayMs ?? 5_000}`);
  const submit = async () => {
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
      toast("done", "Group changed");
      return;
    }
    const made = await rpc("PubSubService", "CreateConsumerGroup", { name, ...settings });
    toast("done", "Group created");
    go(pathOf({ name, ...made, namespace: made.namespace ?? "" }));
  };
  return (
    <FormDialog
      title={of ? "Change the group" : "Create a consumer group"}
      submit={of ? "Change" : "Create"}
      onSubmit={submit}
      onClose={onClose}
    >
      {!of && <Field label="Name" isRequired value={name} onInput={setName} />}
      <Field
        label="Pattern"
        isRequired
        isCode
        value={pattern}
        onInput={setPattern}
        hint="What it gets: events:order.*, entity:cart.> or topic:prices.*"
      />
      <Field label="Filter in CEL" isCode value={filter} onInput={setFilter} hint="Empty takes all" />
      <Choice
        label="Acknowledged"
        value={ackMode}
        onChange={setAckMode}
        options={[
          ["ACK_MODE_MANUAL", "By the consumer"],
          ["ACK_MODE_AUTO", "By being sent"],
        ]}
      />
      <Choice label="When its members are full" value={pressure} onChange={setPressure} options={pressures} />
      <Field label="Deliveries held at most" value={most} onInput={setMost} />
      <Field label="Redeliveries at most" value={again} onInput={setAgain} />
      <Field
        label="Redelivered after, in milliseconds"
        value={delay}
        onInput={setDelay}
        hint="Also how long a consumer may take to acknowledge."
      />
    </FormDialog>
  );
}
