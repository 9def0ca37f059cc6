import { useState } from "preact/hooks";
import { count, counted, cut, dateTime, instantOf, plain } from "../../lib/format.ts";
import { useFollowed } from "../../lib/hooks.ts";
import type { LiveFrame } from "../../lib/live.ts";
import { hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { useTail } from "../../lib/tail.ts";
import { Button, Empty, Facts, Failure, Page, Section, Text } from "../../ui/basics.tsx";
import { Opener } from "../../ui/dialog.tsx";
import { JsonView } from "../../ui/json-view.tsx";
import { firstReplay, ReplayChoice } from "../../ui/replay-choice.tsx";
import { useOne } from "../../ui/resource.tsx";
import { LagSection } from "../../ui/time-chart.tsx";
import { getTopic, PublishDialog } from "./topics.tsx";

const readMs = 5_000;
const keptMax = 1_000;
const shownCharacters = 300;

const lineOf = ({ eventId = "", data, meta }: LiveFrame) => ({
  ...{ id: eventId, data, position: meta?.sequenceExact ?? "" },
  at: instantOf(meta?.timestamp),
});

export function TopicPage() {
  const { id: name, value, error, reload, unread } = useOne({ one: "topic", all: "topics" }, getTopic);
  useFollowed(reload, { list: "topics", everyMs: readMs });
  if (!value) return unread;
  return (
    <Page
      title={<Text of={name} />}
      actions={
        may("events:emit") && (
          <Opener kind="primary" icon="topics" text="Publish…" onClosed={reload}>
            {(onClose) => <PublishDialog topic={name} onClose={onClose} />}
          </Opener>
        )
      }
    >
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      <Facts
        of={[
          ["Messages kept", count(value.messages)],
          ["Oldest position", value.first],
          ["Newest position", value.last],
          ["Group members", count(value.consumers)],
          ["Slowest group behind", counted(value.behind, "message")],
        ]}
      />
      {value.consumers + value.behind > 0 && (
        <LagSection
          key={name}
          title="Messages that its slowest group is behind"
          read={value}
          lag={value.behind}
        />
      )}
      <Section title="Messages" aside={<a href={hrefOf(["groups"])}>Consumer groups</a>}>
        <Messages name={name} />
      </Section>
    </Page>
  );
}

/** What is kept of the topic, newest first, and what comes. */
function Messages({ name }: { name: string }) {
  const [replay, setReplay] = useState(firstReplay);
  const { lines, isHeld, hold, refused } = useTail(`topic:${name}`, { replay, keptMax, lineOf });
  if (refused !== "") return <Failure error={refused} />;
  return (
    <>
      <div class="sql-tools">
        <ReplayChoice value={replay} onChange={setReplay} />
        <Button icon={isHeld ? "play" : "pause"} isPressed={isHeld} onClick={() => hold(!isHeld)}>
          {isHeld ? "Go on" : "Hold"}
        </Button>
      </div>
      {lines.length === 0 ? (
        <Empty title="Waiting for messages" says="They stand here as they are published." />
      ) : (
        <ol class="versions">
          {lines.map((line) => (
            <li key={line.id} data-message={line.id}>
              <details>
                <summary>
                  <span class="number version-number">{line.position}</span>
                  <span class="version-text">
                    <code>
                      <bdi>{plain(cut(JSON.stringify(line.data), shownCharacters))}</bdi>
                    </code>
                  </span>
                  <span class="faint number">{line.at === undefined ? "" : dateTime(line.at)}</span>
                </summary>
                <div class="indented">
                  <JsonView value={line.data} what="message" />
                </div>
              </details>
            </li>
          ))}
        </ol>
      )}
    </>
  );
}
