import { useState } from "preact/hooks";
import { CallError, messageOf, parsedJson, rpc } from "../../lib/api.ts";
import { counted, plain } from "../../lib/format.ts";
import { useChanged, useFollowed, usePages } from "../../lib/hooks.ts";
import type { MethodAnswer } from "../../lib/messages.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { aboutRead, Button, Facts, Page, Section, Text } from "../../ui/basics.tsx";
import { ConfirmOpener, Field } from "../../ui/dialog.tsx";
import { JsonTextView, JsonView } from "../../ui/json-view.tsx";
import { ResourceList, useOne } from "../../ui/resource.tsx";
import { BreakersOf } from "../breakers.tsx";

const service = "AgentToolsService";

async function listTools(cursor: string, signal?: AbortSignal) {
  const page = await rpc(service, "ListTools", { cursor }, signal);
  return { rows: page.tools ?? [], next: page.nextCursor };
}

/** The agent of a tool, whose name has no dot. */
const agentOf = (qualifiedName: string): string => qualifiedName.split(".", 1)[0]!;

export function ToolsPage() {
  const read = usePages(listTools, []);
  useFollowed(read.reload, { list: "tools" });
  return (
    <ResourceList
      title="Agent tools"
      about={aboutRead(read, (all) => counted(all.length, "tool") + (read.hasMore ? ", and more" : ""))}
      read={read}
      keyOf={({ qualifiedName = "" }) => qualifiedName}
      columns={[
        {
          name: "Tool",
          of: ({ qualifiedName = "" }) => <Text of={qualifiedName} href={hrefOf(["tools", qualifiedName])} />,
        },
        { name: "Agent", of: ({ qualifiedName = "" }) => <Text of={agentOf(qualifiedName)} /> },
        { name: "What it does", of: ({ description = "" }) => <Text of={description.slice(0, 300)} /> },
        { name: "Needs", of: ({ requiredScopes = [] }) => <Scopes of={requiredScopes} /> },
      ]}
      empty="No tools"
      docs="sdk#tools-of-agents"
      says="An agent registers its tools, and is called at its address when one is invoked."
    />
  );
}

const Scopes = ({ of }: { of: readonly string[] }) =>
  of.length === 0 ? (
    <span class="faint">nothing</span>
  ) : (
    <span class="triggers">
      {of.map((scope) => (
        <Text key={scope} of={scope} in="code" />
      ))}
    </span>
  );

/** One tool is found in the list, as no call names one. */
async function findTool(name: string, signal: AbortSignal) {
  for (let cursor = ""; ; ) {
    const { rows, next } = await listTools(cursor, signal);
    const found = rows.find(({ qualifiedName }) => qualifiedName === name);
    if (found) return found;
    if (!next) throw new CallError("There is no such tool.", { status: 404, code: "not_found" });
    cursor = next;
  }
}

export function ToolPage() {
  const { id: name, value: tool, reload, unread } = useOne({ one: "tool", all: "tools" }, findTool);
  useChanged("tools", reload);
  if (!tool) return unread;
  const agentName = agentOf(name);
  return (
    <Page
      title={<Text of={name} />}
      about={tool.description && <Text of={tool.description} />}
      actions={
        may("agent:tools:unregister") && (
          <ConfirmOpener
            text="Remove the agent…"
            icon="trash"
            title={`Remove agent ${plain(agentName)}?`}
            verb="Remove the agent"
            act={() => rpc(service, "UnregisterTool", { agentName })}
            done="Agent removed"
            onDone={() => go(hrefOf(["tools"]))}
          >
            <p>All tools of the agent go with it, until it registers them again.</p>
          </ConfirmOpener>
        )
      }
    >
      <Facts
        of={[
          ["Agent", <Text key="agent" of={agentName} />],
          ["Needs", <Scopes key="scopes" of={tool.requiredScopes ?? []} />],
        ]}
      />
      <div class="columns spaced">
        <Section title="Input schema">
          <JsonTextView text={tool.inputSchemaJson || "{}"} what="schema" />
        </Section>
        {may("agent:tools:invoke") && (
          <Section title="Invoke">
            <InvokeForm name={name} />
          </Section>
        )}
      </div>
      {may("functions:list") && <BreakersOf id={`agent:${agentName}`} title="Breaker of the agent" />}
    </Page>
  );
}

function InvokeForm({ name }: { name: string }) {
  const [text, setText] = useState("{}");
  const [isBusy, setBusy] = useState(false);
  const [outcome, setOutcome] = useState<MethodAnswer<typeof service, "InvokeTool">>();
  const invoke = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const inputValue = parsedJson(text, "input");
      setOutcome(await rpc(service, "InvokeTool", { toolName: name, inputValue }));
    } catch (failure) {
      setOutcome({ error: { message: messageOf(failure) } });
    } finally {
      setBusy(false);
    }
  };
  return (
    <form class="form" onSubmit={(event) => void invoke(event)}>
      <Field label="Input (JSON)" isCode rows={8} value={text} onInput={setText} />
      <div>
        <Button type="submit" kind="primary" icon="play" isDisabled={isBusy}>
          {isBusy ? "The agent works…" : "Invoke"}
        </Button>
      </div>
      <div aria-live="polite">{outcome && <Outcome of={outcome} />}</div>
    </form>
  );
}

const Outcome = ({
  of: { error, outputValue, output },
}: {
  of: MethodAnswer<typeof service, "InvokeTool">;
}) =>
  error ? (
    <p class="form-error" role="alert">
      <Text of={[error.code, error.message].filter(Boolean).join(": ")} />
    </p>
  ) : (
    <JsonView value={outputValue ?? output ?? null} what="output" />
  );
