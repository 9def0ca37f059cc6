import type { Static } from "@sinclair/typebox";
import { useState } from "preact/hooks";
import type { AlertShape, RuleShape } from "../../domain/integrations/alerts/operations.ts";
import { rest } from "../lib/api.ts";
import { count, instantOf, plain } from "../lib/format.ts";
import { useFollowed, useLoaded, usePages } from "../lib/hooks.ts";
import { queryOf } from "../lib/router.ts";
import { may } from "../lib/session.ts";
import { attempt } from "../lib/toasts.ts";
import { Button, Failure, Page, Section, Text, When } from "../ui/basics.tsx";
import {
  type ChangeEnds,
  Choice,
  Confirm,
  Dialog,
  Field,
  FormDialog,
  Opener,
  useFields,
} from "../ui/dialog.tsx";
import { Status } from "../ui/status.tsx";
import { ReadTable, Table } from "../ui/table.tsx";

type RuleData = Static<typeof RuleShape>;
type AlertData = Static<typeof AlertShape>;
type TargetData = RuleData["targets"][number];

const readMs = 10_000;
const hourMs = 60 * 60 * 1_000;
const one = (name: string) => encodeURIComponent(name);

/** What each condition means, and the number that it needs. */
const conditions: readonly (readonly [name: string, words: string])[] = [
  ["run_failed", "A run failed for good"],
  ["failure_share", "Too large a share of runs fails"],
  ["oldest_waiting", "A run waits too long for a worker"],
  ["no_worker", "No worker serves a function"],
  ["missed_schedule", "A schedule missed a slot"],
  ["dead_letter", "There are dead letters"],
  ["breaker_open", "A circuit breaker is open"],
  ["projection_error", "A projection stands still at an error"],
  ["endpoint_stopped", "An endpoint is disabled"],
  ["quota_near", "A quota is nearly used up"],
  ["integrity", "What is stored is out of balance"],
];
const wordsOf = (condition: string): string =>
  conditions.find(([name]) => name === condition)?.[1] ?? condition;

const lineOf = ({ type, url = "", secret = "", to = [] }: TargetData): string =>
  [type, type === "email" ? to.join(",") : url, secret].filter((word) => word !== "").join(" ");

/** A target a line: `slack https://…`, `email a@b,c@d`, `webhook https://… SECRET`. */
const targetOf = (line: string): TargetData => {
  const [type = "", place = "", secret] = line.trim().split(/\s+/);
  if (type === "email") return { type, to: place.split(",") };
  return { type, url: place, ...(secret !== undefined && { secret }) };
};

interface AskedOfRule {
  deed: "edit" | "delete" | "silence" | "test";
  rule: RuleData;
}

export function AlertsPage() {
  const [asked, setAsked] = useState<AskedOfRule>();
  const read = useLoaded(
    async (signal) => (await rest<{ rules: RuleData[] }>("/api/v1/alert-rules", { signal })).rules,
    [],
  );
  useFollowed(read.reload, { list: "alerts", everyMs: readMs });
  const manages = may("alerts:manage");
  const ends = { onDone: read.reload, onClose: () => setAsked(undefined) };
  return (
    <Page
      title="Alerts"
      about="Who is told when something goes wrong"
      actions={
        manages && (
          <Opener kind="primary" icon="plus" text="New rule…">
            {(onClose) => <RuleDialog known={read.value} onClose={onClose} onDone={read.reload} />}
          </Opener>
        )
      }
    >
      <Section title="Rules">
        <ReadTable
          read={read}
          keyOf={({ name }) => name}
          label="Rules"
          empty="No rules"
          docs="alerts"
          says="A rule tells a webhook, Slack or people by mail."
          columns={[
            {
              name: "Rule",
              of: ({ name, condition, function_id, silenced_until: until }) => (
                <>
                  <Text of={name} />
                  <Text
                    of={[wordsOf(condition), function_id].filter(Boolean).join(": ")}
                    in="span"
                    class="under"
                  />
                  {until !== undefined && Date.parse(until) > Date.now() && (
                    <span class="under warn">
                      silent, ends <When at={until} />
                    </span>
                  )}
                </>
              ),
            },
            {
              name: "Tells",
              of: ({ targets }) =>
                targets.map(lineOf).map((line) => <Text key={line} of={line} in="span" class="slot" />),
            },
            {
              name: "",
              of: (rule) => manages && <RuleActions onAsk={(deed) => setAsked({ deed, rule })} />,
            },
          ]}
        />
      </Section>
      <History manages={manages} />
      {asked?.deed === "edit" && <RuleDialog rule={asked.rule} {...ends} />}
      {asked?.deed === "silence" && <SilenceDialog rule={asked.rule} {...ends} />}
      {asked?.deed === "test" && <TestDialog rule={asked.rule} {...ends} />}
      {asked?.deed === "delete" && (
        <Confirm
          title={`Delete ${plain(asked.rule.name)}?`}
          verb="Delete the rule"
          act={() => rest(`/api/v1/alert-rules/${one(asked.rule.name)}`, { method: "DELETE" })}
          done="Rule deleted"
          {...ends}
        >
          <p>Its alerts go with it, and nobody is told any more.</p>
        </Confirm>
      )}
    </Page>
  );
}

const RuleActions = ({ onAsk }: { onAsk: (deed: AskedOfRule["deed"]) => void }) => (
  <span class="row-actions in-line">
    <Button text="Test…" onClick={() => onAsk("test")} />
    <Button text="Silence…" onClick={() => onAsk("silence")} />
    <Button icon="edit" text="Edit…" onClick={() => onAsk("edit")} />
    <Button icon="trash" text="Delete…" onClick={() => onAsk("delete")} />
  </span>
);

/** What rules found, with what became of its messages. */
function History({ manages }: { manages: boolean }) {
  const read = usePages(async (cursor, signal) => {
    const path = `/api/v1/alerts${queryOf({ cursor })}`;
    const { alerts, next_cursor } = await rest<{ alerts: AlertData[]; next_cursor: string }>(path, {
      signal,
    });
    return { rows: alerts, next: next_cursor || undefined };
  }, []);
  useFollowed(read.reload, { list: "alerts", everyMs: readMs });
  const resolve = async (id: string) => {
    if (await attempt(() => rest(`/api/v1/alerts/${one(id)}/resolve`, { method: "POST" }), "Resolved"))
      read.reload();
  };
  return (
    <Section title="History">
      <ReadTable
        read={read}
        keyOf={({ id }) => id}
        label="History"
        empty="No alert so far"
        columns={[
          {
            name: "Alert",
            of: ({ rule, detail = "", subject = "" }) => (
              <>
                <Text of={rule} />
                <Text of={detail || subject} in="span" class="under" />
              </>
            ),
          },
          { name: "Status", of: ({ state }) => <Status of={state} /> },
          { name: "Count", isNumber: true, of: (alert) => count(alert.count) },
          { name: "Opened", of: ({ opened_at }) => <When at={instantOf(opened_at)} /> },
          { name: "Ended", of: ({ resolved_at }) => <When at={resolved_at} /> },
          { name: "Told", of: ({ deliveries }) => <Told deliveries={deliveries} /> },
          {
            name: "",
            of: ({ id, state }) =>
              manages && state === "open" && <Button onClick={() => void resolve(id)}>Resolve</Button>,
          },
        ]}
      />
    </Section>
  );
}

const Told = ({ deliveries }: Pick<AlertData, "deliveries">) => (
  <>
    {deliveries.map(({ target, state, last_error = "" }) => (
      <span key={target} class="under">
        <Text of={`${target}: ${state.replace("_", " ")}${last_error && ` (${last_error})`}`} />
      </span>
    ))}
  </>
);

function RuleDialog(props: ChangeEnds & { rule?: RuleData; known?: readonly RuleData[] | undefined }) {
  const { rule, known = [], ...ends } = props;
  const [typed, field] = useFields({
    ...{
      name: rule?.name ?? "",
      condition: rule?.condition ?? "run_failed",
      functionId: rule?.function_id ?? "",
    },
    ...{ share: `${rule?.share ?? "0.5"}`, minutes: `${rule?.window_minutes ?? "15"}` },
    ...{ minimum: `${rule?.minimum ?? "1"}`, waiting: `${(rule?.waiting_ms ?? 60_000) / 1_000}` },
    ...{ targets: rule?.targets.map(lineOf).join("\n") ?? "" },
    hours: `${(rule?.repeat_after_ms ?? 4 * hourMs) / hourMs}`,
  });
  const { condition } = typed;
  const shares = condition === "failure_share" || condition === "quota_near";
  const submit = async () => {
    const body = {
      condition,
      ...(typed.functionId !== "" && { function_id: typed.functionId }),
      ...(shares && { share: Number(typed.share) }),
      ...(condition === "failure_share" && {
        ...{ window_minutes: Number(typed.minutes), minimum: Number(typed.minimum) },
      }),
      ...(condition === "oldest_waiting" && { waiting_ms: Math.round(Number(typed.waiting) * 1_000) }),
      targets: typed.targets
        .split("\n")
        .filter((line) => line.trim() !== "")
        .map(targetOf),
      repeat_after_ms: Math.round(Number(typed.hours) * hourMs),
      ...(rule && { resolve_after_ms: rule.resolve_after_ms }),
    };
    // A PUT would replace it, and what it tells.
    if (known.some(({ name }) => name === typed.name))
      throw new Error(`There is a rule ${plain(typed.name)}: edit it`);
    await rest(`/api/v1/alert-rules/${one(typed.name)}`, { method: "PUT", body });
    return `${plain(typed.name)} saved`;
  };
  return (
    <FormDialog
      title={rule ? `Edit ${plain(rule.name)}` : "New rule"}
      submit="Save"
      onSubmit={submit}
      {...ends}
    >
      {!rule && <Field label="Name" isRequired {...field("name")} hint="Such as mail-me" />}
      <Choice label="When" options={conditions} {...field("condition")} />
      <Field label="Function" {...field("functionId")} hint="Empty: all, where a rule may be of all" />
      {shares && <Field label="Share" type="number" isRequired {...field("share")} hint="From 0 to 1" />}
      {condition === "failure_share" && (
        <>
          <Field label="Minutes" type="number" isRequired {...field("minutes")} />
          <Field label="Runs at least" type="number" isRequired {...field("minimum")} />
        </>
      )}
      {condition === "oldest_waiting" && (
        <Field label="Seconds" type="number" isRequired {...field("waiting")} />
      )}
      <Field
        label="Tells"
        rows={4}
        isCode
        isRequired
        {...field("targets")}
        hint="A target a line: slack URL, email ADDRESS,ADDRESS, or webhook URL SECRET-NAME"
      />
      <Field
        label="Again after hours"
        type="number"
        isRequired
        {...field("hours")}
        hint="While it lasts; 0 for never"
      />
    </FormDialog>
  );
}

function SilenceDialog({ rule, ...ends }: ChangeEnds & { rule: RuleData }) {
  const [{ hours }, field] = useFields({ hours: "1" });
  const submit = async () => {
    const until = Number(hours) > 0 && new Date(Date.now() + Number(hours) * hourMs).toISOString();
    await rest(`/api/v1/alert-rules/${one(rule.name)}/silence`, { body: until ? { until } : {} });
    return until ? "Nobody is told until then" : "The silence is over";
  };
  return (
    <FormDialog title={`Silence ${plain(rule.name)}?`} submit="Silence" onSubmit={submit} {...ends}>
      <p>Alerts open and end as ever; nobody is told.</p>
      <Field label="Hours" type="number" isRequired {...field("hours")} hint="0 ends the silence" />
    </FormDialog>
  );
}

interface AlertTestData {
  target: string;
  delivered: boolean;
  error: string;
}

/** Real people read it: it is asked first. */
function TestDialog({ rule, onClose }: ChangeEnds & { rule: RuleData }) {
  const [isSent, setSent] = useState(false);
  return (
    <Dialog title={`Test of ${plain(rule.name)}`} onClose={onClose}>
      {isSent ? (
        <TestResults name={rule.name} />
      ) : (
        <>
          <p>A test message goes to each target of the rule:</p>
          {rule.targets.map(lineOf).map((line) => (
            <Text key={line} of={line} in="p" />
          ))}
          <footer class="dialog-foot">
            <Button text="Close" onClick={onClose} />
            <Button kind="primary" text="Send" onClick={() => setSent(true)} />
          </footer>
        </>
      )}
    </Dialog>
  );
}

function TestResults({ name }: { name: string }) {
  const read = useLoaded(
    (signal) =>
      rest<{ results: AlertTestData[] }>(`/api/v1/alert-rules/${one(name)}/test`, {
        method: "POST",
        signal,
      }),
    [name],
  );
  if (read.error !== undefined) return <Failure error={read.error} />;
  if (!read.value) return <p class="faint">Sending…</p>;
  return (
    <Table
      rows={read.value.results}
      keyOf={({ target }) => target}
      columns={[
        { name: "Target", of: ({ target }) => <Text of={target} /> },
        { name: "Came", of: ({ delivered }) => <Status of={delivered ? "done" : "failed"} /> },
        { name: "Why not", of: ({ error }) => <Text of={error} /> },
      ]}
    />
  );
}
