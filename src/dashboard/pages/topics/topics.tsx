import { useState } from "preact/hooks";
import { parsedJson, rpc } from "../../lib/api.ts";
import { count } from "../../lib/format.ts";
import { useChanged, useNet, usePages } from "../../lib/hooks.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { toast } from "../../lib/toasts.ts";
import { listTopics } from "../../lib/topics.ts";
import { Button, Empty, PageHead, Text, When } from "../../ui/basics.tsx";
import { Field, FormDialog } from "../../ui/dialog.tsx";
import { ReadTable } from "../../ui/table.tsx";

const readMs = 5_000;

export function TopicsPage() {
  const [isPublishing, setPublishing] = useState(false);
  const read = usePages(listTopics, []);
  useChanged("topics", read.reload);
  useNet(read.reload, readMs);
  return (
    <div class="page">
      <PageHead
        title="Topics"
        about="Messages between programs; they start no functions"
        actions={
          may("events:emit") && (
            <Button kind="primary" icon="topics" onClick={() => setPublishing(true)}>
              Publish…
            </Button>
          )
        }
      />
      <ReadTable
        read={read}
        keyOf={({ name }) => name}
        empty={<Empty title="No topics" says="The first message of a topic makes it." />}
        columns={[
          { name: "Topic", of: ({ name }) => <Text of={name} href={hrefOf(["topics", name])} /> },
          { name: "Messages kept", isNumber: true, of: ({ messages }) => count(messages) },
          { name: "Group members", isNumber: true, of: ({ consumers }) => count(consumers) },
          { name: "Oldest", isNumber: true, of: ({ firstAt }) => <When at={firstAt} /> },
          { name: "Newest", isNumber: true, of: ({ lastAt }) => <When at={lastAt} /> },
        ]}
      />
      {isPublishing && <PublishDialog onClose={() => setPublishing(false)} />}
    </div>
  );
}

export function PublishDialog(props: { topic?: string; onClose: () => void }) {
  const [topic, setTopic] = useState(props.topic ?? "");
  const [text, setText] = useState("{}");
  const submit = async () => {
    const dataValue = parsedJson(text, "data");
    const { sequence } = await rpc("PubSubService", "Publish", { topic, dataValue });
    toast("done", `Published at position ${sequence}`);
    if (props.topic === undefined) go(hrefOf(["topics", topic]));
  };
  return (
    <FormDialog title="Publish a message" submit="Publish" onSubmit={submit} onClose={props.onClose}>
      {props.topic === undefined && (
        <Field label="Topic" isRequired value={topic} onInput={setTopic} hint="Such as prices.changed" />
      )}
      <Field label="Data (JSON)" isCode rows={10} value={text} onInput={setText} />
    </FormDialog>
  );
}
