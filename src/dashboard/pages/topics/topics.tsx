import { parsedJson, rpc } from "../../lib/api.ts";
import { count, instantOf } from "../../lib/format.ts";
import { useFollowed, usePages } from "../../lib/hooks.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { Text, When } from "../../ui/basics.tsx";
import { type DialogEnds, Field, FormDialog, useFields } from "../../ui/dialog.tsx";
import { ResourceList } from "../../ui/resource.tsx";

async function listTopics(cursor: string, signal: AbortSignal) {
  const asked = { limit: 200, cursor };
  const { topics = [], nextCursor = "" } = await rpc("PubSubService", "ListTopics", asked, signal);
  return {
    rows: topics.map((m) => ({
      ...{ name: m.name ?? "", messages: Number(m.messageCount ?? 0), consumers: m.consumerCount ?? 0 },
      ...{ firstAt: instantOf(m.firstMessageAt), lastAt: instantOf(m.lastMessageAt) },
    })),
    next: nextCursor || undefined,
  };
}

export async function getTopic(topic: string, signal: AbortSignal) {
  const m = await rpc("PubSubService", "GetTopicStats", { topic }, signal);
  return {
    ...{ messages: Number(m.messageCount ?? 0), consumers: m.consumerCount ?? 0 },
    /** `behind`: what the slowest group has not taken. */
    ...{ behind: Number(m.lag ?? 0), first: m.firstSeq ?? "0", last: m.lastSeq ?? "0" },
  };
}

const readMs = 5_000;

export function TopicsPage() {
  const read = usePages(listTopics, []);
  useFollowed(read.reload, { list: "topics", everyMs: readMs });
  return (
    <ResourceList
      title="Topics"
      about="Messages between programs; they start no functions"
      makes={{ text: "Publish…", icon: "topics", needs: "events:emit", dialog: PublishDialog }}
      read={read}
      keyOf={({ name }) => name}
      empty="No topics"
      docs="real-time"
      says="The first message of a topic makes it."
      columns={[
        { name: "Topic", of: ({ name }) => <Text of={name} href={hrefOf(["topics", name])} /> },
        { name: "Messages kept", isNumber: true, of: ({ messages }) => count(messages) },
        { name: "Group members", isNumber: true, of: ({ consumers }) => count(consumers) },
        { name: "Oldest", isNumber: true, of: ({ firstAt }) => <When at={firstAt} /> },
        { name: "Newest", isNumber: true, of: ({ lastAt }) => <When at={lastAt} /> },
      ]}
    />
  );
}

export function PublishDialog(props: DialogEnds & { topic?: string }) {
  const [{ topic, text }, field] = useFields({ topic: props.topic ?? "", text: "{}" });
  const submit = async () => {
    const dataValue = parsedJson(text, "data");
    const { sequence } = await rpc("PubSubService", "Publish", { topic, dataValue });
    if (props.topic === undefined) go(hrefOf(["topics", topic]));
    return `Published at position ${sequence}`;
  };
  return (
    <FormDialog title="Publish a message" submit="Publish" onSubmit={submit} onClose={props.onClose}>
      {props.topic === undefined && (
        <Field label="Topic" isRequired {...field("topic")} hint="Such as prices.changed" />
      )}
      <Field label="Data (JSON)" isCode rows={10} {...field("text")} />
    </FormDialog>
  );
}
