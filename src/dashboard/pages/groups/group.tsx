import { rpc } from "../../lib/api.ts";
import { count, counted, dateTime, duration, plain } from "../../lib/format.ts";
import { useFollowed, useLoaded } from "../../lib/hooks.ts";
import { address, go, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { attempt } from "../../lib/toasts.ts";
import { Button, Empty, Facts, Failure, Page, Section, Text, Unread, When } from "../../ui/basics.tsx";
import { ConfirmOpener, Opener } from "../../ui/dialog.tsx";
import { Status } from "../../ui/status.tsx";
import { Table } from "../../ui/table.tsx";
import { LagSection } from "../../ui/time-chart.tsx";
import { GroupDialog, type GroupView, getGroup, readMs, type WholeGroup } from "./groups.tsx";

export function GroupPage() {
  const [namespace = "", name = ""] = address.value.rest;
  const { value, error, reload } = useLoaded(
    (signal) => getGroup(namespace, name, signal),
    [namespace, name],
  );
  useFollowed(reload, { frames: `system.group.${namespace}.${name}.>`, everyMs: readMs });
  if (!value)
    return (
      <Unread error={error} onRetry={reload} one="consumer group" all="groups" allName="consumer groups" />
    );
  const { group, behind } = value;
  return (
    <Page
      title={
        <>
          <Text of={name} />
          <Status of={group.status} />
        </>
      }
      about={<Text of={namespace} />}
      actions={may("events:emit") && <GroupActions group={group} onDone={reload} />}
    >
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      <Facts
        of={[
          ["Behind", counted(behind, "position")],
          ["Position", group.position],
          ["Held", `${count(group.held)} of ${count(group.maxInflight)}`],
          ["Given up", count(group.givenUp)],
          ["Passed over", count(group.dropped)],
        ]}
      />
      <LagSection key={`${namespace} ${name}`} title="Positions behind" read={value} lag={behind} />
      <div class="columns spaced">
        <Section title="Members">
          <Members of={value} />
        </Section>
        <Section title="Settings">
          <Facts
            of={[
              ["Gets", <code key="gets">{plain(group.pattern)}</code>],
              group.filter && ["Filter", <code key="filter">{plain(group.filter)}</code>],
              ["Acknowledged", group.ackMode === "manual" ? "by the consumer" : "by being sent"],
              ["When full", group.backpressure],
              ["Redeliveries", `${count(group.maxRedeliveries)} at most`],
              ["Redelivered after", duration(group.redeliverDelayMs)],
              ["Made", <When key="made" at={group.createdAt} />],
            ]}
          />
        </Section>
      </div>
      <Section title="Not acknowledged">
        <Deliveries of={value} onDone={reload} />
      </Section>
    </Page>
  );
}

const Members = ({ of }: { of: WholeGroup }) =>
  of.members.length === 0 ? (
    <Empty title="None is connected">
      {of.behind > 0 && <p>What comes waits for one, and is not lost.</p>}
    </Empty>
  ) : (
    <>
      <ul class="plain-list">
        {of.members.map((member) => (
          <li key={member.consumer}>
            <span class="grows">
              <Text of={member.consumer} />
              {member.client && <Text of={member.client} in="span" class="under" />}
            </span>
            <span class="faint">
              {"joined "}
              <When at={member.joinedAt} />
            </span>
          </li>
        ))}
      </ul>
      {of.group.members > of.members.length && (
        <p class="hint">{`${count(of.group.members - of.members.length)} more`}</p>
      )}
    </>
  );

/** What is handed out, and what waits to be handed out again. */
function Deliveries({ of, onDone }: { of: WholeGroup; onDone: () => void }) {
  const { group, deliveries } = of;
  if (deliveries.length === 0) return <Empty title="Nothing is held" />;
  const isOfEvents = !group.pattern.startsWith("topic:");
  const canSettle = may("events:emit") && group.ackMode === "manual";
  const settle = async (eventId: string, consumerId: string, verdict: "NAK" | "TERM", done: string) => {
    const { namespace, name: groupName } = group;
    const asked = { namespace, groupName, consumerId, eventId, ackType: `ACK_TYPE_${verdict}` };
    if (await attempt(() => rpc("PubSubService", "AckEvent", asked), done)) onDone();
  };
  return (
    <>
      <Table
        rows={deliveries}
        keyOf={({ eventId }) => eventId}
        columns={[
          {
            name: "Event",
            of: ({ eventId }) => (
              <code>
                {isOfEvents ? <a href={hrefOf(["events", eventId])}>{plain(eventId)}</a> : plain(eventId)}
              </code>
            ),
          },
          { name: "Position", isNumber: true, of: ({ position }) => count(Number(position)) },
          {
            name: "Attempt",
            isNumber: true,
            of: ({ attempt: many }) => <span class={many > 1 ? "warn" : undefined}>{many}</span>,
          },
          {
            name: "Held by",
            of: ({ consumer }) =>
              consumer ? <Text of={consumer} /> : <span class="faint">waits for its next attempt</span>,
          },
          { name: "Until", of: ({ dueAt }) => (dueAt === undefined ? "–" : dateTime(dueAt)) },
          {
            name: "",
            of: ({ eventId, consumer }) =>
              canSettle && (
                <span class="row-actions">
                  {consumer !== "" && (
                    <Button onClick={() => void settle(eventId, consumer, "NAK", "It is delivered again")}>
                      Deliver again
                    </Button>
                  )}
                  <Button onClick={() => void settle(eventId, consumer, "TERM", "Given up")}>Give up</Button>
                </span>
              ),
          },
        ]}
      />
      {group.held > deliveries.length && (
        <p class="hint">{`${count(group.held - deliveries.length)} more, at later positions`}</p>
      )}
    </>
  );
}

function GroupActions({ group, onDone }: { group: GroupView; onDone: () => void }) {
  const { namespace, name } = group;
  const isPaused = group.status === "paused";
  const move = async () => {
    const status = `CONSUMER_GROUP_STATUS_${isPaused ? "ACTIVE" : "PAUSED"}`;
    const change = { group: { namespace, name, status }, updateMask: "status" };
    const done = isPaused ? "The group goes on" : "The group hands nothing out";
    if (await attempt(() => rpc("PubSubService", "UpdateConsumerGroup", change), done)) onDone();
  };
  return (
    <>
      <Button icon={isPaused ? "play" : "pause"} onClick={() => void move()}>
        {isPaused ? "Continue" : "Pause"}
      </Button>
      <Opener text="Change…" onClosed={onDone}>
        {(onClose) => <GroupDialog of={group} onClose={onClose} />}
      </Opener>
      <ConfirmOpener
        text="Delete…"
        title={`Delete ${plain(name)}?`}
        verb="Delete"
        act={() => rpc("PubSubService", "DeleteConsumerGroup", { namespace, name })}
        done={`${plain(name)} deleted`}
        onDone={() => go(hrefOf(["groups"]))}
      >
        <p>Its place in the log is lost, and its members' streams end.</p>
      </ConfirmOpener>
    </>
  );
}
