import { useEffect, useState } from "preact/hooks";
import {
  accessScope,
  changePolicy,
  type DryRunData,
  deletePolicy,
  dryRun,
  getPolicy,
  listPolicyVersions,
  type PolicyData,
  type PolicyVersionData,
  rollbackPolicy,
} from "../../lib/access.ts";
import { messageOf } from "../../lib/api.ts";
import { count, dateTime, instantOf, plain } from "../../lib/format.ts";
import { useLoaded } from "../../lib/hooks.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { Button, Facts, Failure, Id, Page, Section, Text, When } from "../../ui/basics.tsx";
import {
  type ChangeEnds,
  Confirm,
  ConfirmOpener,
  Field,
  FormDialog,
  Opener,
  useFields,
} from "../../ui/dialog.tsx";
import { JsonDiff } from "../../ui/diff.tsx";
import { useOne } from "../../ui/resource.tsx";
import { Status } from "../../ui/status.tsx";
import { PolicyFields, type TypedPolicy } from "./policies.tsx";

const pauseMs = 400;
/** Past calls that the policy is tried on: those of one week, at most as many as the server tries at once. */
const triedMs = 7 * 86_400_000;
const triedMax = 10_000;
const subjectsShown = 10;

/** The made-up call that the policy is tried on. */
const firstSample = { action: "events:emit", type: "event", resource: "order.placed", role: "developer" };

/** Tries the policy as it is typed: on a made-up call, and on what callers of the org did in a week. */
function DryRun({ of }: { of: TypedPolicy }) {
  const [sample, field] = useFields(firstSample);
  const [found, setFound] = useState<{ answer?: DryRunData; error?: unknown }>({});
  const key = JSON.stringify([of, sample]);
  useEffect(() => {
    const over = new AbortController();
    const { action, type, resource, role } = sample;
    const body = {
      ...of,
      ...{ subject: { kind: "user", roles: [role] }, request: { action, type, resource } },
      ...{ last: triedMax, since: new Date(Date.now() - triedMs).toISOString() },
    };
    const look = () =>
      dryRun(body, over.signal).then(
        (answer) => setFound({ answer }),
        (error) => !over.signal.aborted && setFound({ error }),
      );
    const timer = setTimeout(look, pauseMs);
    return () => {
      clearTimeout(timer);
      over.abort();
    };
  }, [key]);
  return (
    <>
      <div class="form form-pairs">
        <Field label="Action" {...field("action")} />
        <Field label="Role of the caller" {...field("role")} />
        <Field label="Type of the thing" {...field("type")} />
        <Field label="Name of the thing" {...field("resource")} />
      </div>
      <div class="dry-run" aria-live="polite">
        {found.error !== undefined && <Text of={messageOf(found.error)} in="p" class="form-error" />}
        {found.answer && <Answer of={found.answer} />}
      </div>
    </>
  );
}

function Answer({ of }: { of: DryRunData }) {
  const problem = of.compile_error ?? of.eval_error;
  return (
    <>
      <p>
        {"This call: "}
        <Status of={of.matched ? "denied" : "not_denied"} />
      </p>
      {problem !== undefined && <Text of={problem} in="p" class="form-error" />}
      {of.warnings?.map((warning) => (
        <Text key={warning} of={warning} in="p" class="issue" />
      ))}
      {of.past && (
        <>
          <p>
            {of.past.decisions < triedMax
              ? `Of the ${count(of.past.decisions)} audited calls of the last week`
              : `Of the newest ${count(of.past.decisions)} audited calls`}
            {` it would have denied ${count(of.past.denied)}.`}
          </p>
          {of.past.subjects.length > 0 && (
            <p class="hint">
              {"Of: "}
              <Text of={of.past.subjects.slice(0, subjectsShown).join(", ")} />
            </p>
          )}
        </>
      )}
    </>
  );
}

const textOf = ({ actions, resources, condition }: TypedPolicy): TypedPolicy => ({
  ...{ actions, resources, condition },
});

export function PolicyPage() {
  const scope = accessScope();
  const {
    value: found,
    reload,
    unread,
  } = useOne({ one: "policy", all: "policies" }, (id, signal) => getPolicy(scope, id, signal), [scope]);
  return found ? <PolicyInside key={found.version} found={found} onDone={reload} /> : unread;
}

function PolicyInside({ found, onDone }: { found: PolicyData; onDone: () => void }) {
  const scope = accessScope();
  const [text, setText] = useState(() => textOf(found));
  const isChanged = JSON.stringify(text) !== JSON.stringify(textOf(found));
  return (
    <Page
      title={<Text of={found.name} />}
      about={<Id of={found.id} what="Policy id" />}
      actions={
        may(scope.manages.policies) && (
          <>
            <Opener kind="primary" isDisabled={!isChanged} text="Save…">
              {(onClose) => <SaveDialog {...{ found, text, onDone, onClose }} />}
            </Opener>
            <ConfirmOpener
              text="Delete…"
              icon="trash"
              title={`Delete policy ${plain(found.name)}?`}
              verb="Delete the policy"
              act={() => deletePolicy(scope, found.id)}
              done="Policy deleted"
              onDone={() => go(hrefOf(["policies"]))}
            >
              <p>What it denied is granted again to the roles that have it.</p>
            </ConfirmOpener>
          </>
        )
      }
    >
      <Facts
        of={[
          ["Effect", found.effect],
          ["Version", count(found.version)],
          ["Changed", <When key="changed" at={found.updated_at} />],
        ]}
      />
      {found.warnings?.map((warning) => (
        <Text key={warning} of={warning} in="p" class="issue" />
      ))}
      <div class="columns spaced">
        <Section title="What it denies">
          <form class="form" onSubmit={(event) => event.preventDefault()}>
            <PolicyFields of={text} onChange={setText} />
          </form>
        </Section>
        {!scope.isPlatform && (
          <Section title="What it would do">
            <DryRun of={text} />
          </Section>
        )}
      </div>
      {!scope.isPlatform && (
        <Section title="Versions">
          <Versions of={found} onDone={onDone} />
        </Section>
      )}
    </Page>
  );
}

function SaveDialog({ found, text, ...ends }: ChangeEnds & { found: PolicyData; text: TypedPolicy }) {
  const [{ reason }, field] = useFields({ reason: "" });
  const submit = async () => {
    const body = { ...text, ...(reason && { change_reason: reason }) };
    const { version } = await changePolicy(accessScope(), found.id, body);
    return `${plain(found.name)} is at version ${count(version)}`;
  };
  return (
    <FormDialog title={`Save ${plain(found.name)}?`} submit="Save" onSubmit={submit} {...ends}>
      <JsonDiff before={textOf(found)} after={text} />
      <Field label="Reason" {...field("reason")} hint="Kept with the version." />
    </FormDialog>
  );
}

function Versions({ of, onDone }: { of: PolicyData; onDone: () => void }) {
  const { value, error, reload } = useLoaded(
    (signal) => listPolicyVersions(of.id, signal),
    [of.id, of.version],
  );
  const [rolled, setRolled] = useState<PolicyVersionData>();
  if (error !== undefined) return <Failure error={error} onRetry={reload} />;
  return (
    <ol class="versions">
      {value?.map((version, index) => (
        <li key={version.version_num}>
          <details>
            <summary>
              <strong class="number">{count(version.version_num)}</strong>
              <Text of={version.change_reason ?? ""} in="span" class="grows" />
              <Text of={version.author_id} in="span" class="faint" />
              <span class="faint number">{dateTime(instantOf(version.created_at) ?? 0)}</span>
            </summary>
            <JsonDiff before={value[index + 1] ? textOf(value[index + 1]!) : {}} after={textOf(version)} />
            {index > 0 && may("orgs:manage") && (
              <Button icon="undo" text="Roll back to this…" onClick={() => setRolled(version)} />
            )}
          </details>
        </li>
      ))}
      {rolled && (
        <Confirm
          title={`Roll back to version ${count(rolled.version_num)}?`}
          verb="Roll back"
          isDangerous={false}
          act={() => rollbackPolicy(of.id, rolled.version_num)}
          done="Policy rolled back"
          onDone={onDone}
          onClose={() => setRolled(undefined)}
        >
          <JsonDiff before={textOf(of)} after={textOf(rolled)} />
        </Confirm>
      )}
    </ol>
  );
}
