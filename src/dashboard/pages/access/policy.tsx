import { useEffect, useState } from "preact/hooks";
import {
  accessScope,
  changePolicy,
  deletePolicy,
  getPolicy,
  listPolicyVersions,
  type PolicyData,
  type PolicyVersionData,
  rollbackPolicy,
} from "../../lib/access.ts";
import { count, dateTime, instantOf, plain } from "../../lib/format.ts";
import { useLoaded } from "../../lib/hooks.ts";
import { noteRecent } from "../../lib/prefs.ts";
import { address, go, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { toast } from "../../lib/toasts.ts";
import { Button, Facts, Failure, Id, PageHead, Section, Text, Unread, When } from "../../ui/basics.tsx";
import { Confirm, Field, FormDialog } from "../../ui/dialog.tsx";
import { JsonDiff } from "../../ui/diff.tsx";
import { DryRun } from "./dry-run.tsx";
import { PolicyFields, type TypedPolicy } from "./policy-fields.tsx";

const textOf = ({ actions, resources, condition }: TypedPolicy): TypedPolicy => ({
  ...{ actions, resources, condition },
});

export function PolicyPage() {
  const scope = accessScope();
  const id = address.value.rest[0] ?? "";
  const { value, error, reload } = useLoaded((signal) => getPolicy(scope, id, signal), [scope, id]);
  useEffect(() => noteRecent("policies", id), [id]);
  if (!value) return <Unread error={error} onRetry={reload} one="policy" all="policies" />;
  return <PolicyInside key={value.version} found={value} onDone={reload} />;
}

function PolicyInside({ found, onDone }: { found: PolicyData; onDone: () => void }) {
  const scope = accessScope();
  const [text, setText] = useState(() => textOf(found));
  const [asked, setAsked] = useState<"save" | "delete">();
  const close = () => setAsked(undefined);
  const isChanged = JSON.stringify(text) !== JSON.stringify(textOf(found));
  const manages = may(scope.manages.policies);
  return (
    <div class="page">
      <PageHead
        title={<Text of={found.name} />}
        about={<Id of={found.id} what="Policy id" />}
        actions={
          manages && (
            <>
              <Button kind="primary" isDisabled={!isChanged} onClick={() => setAsked("save")}>
                Save…
              </Button>
              <Button icon="trash" onClick={() => setAsked("delete")}>
                Delete…
              </Button>
            </>
          )
        }
      />
      <Facts
        of={[
          ["Effect", found.effect],
          ["Version", count(found.version)],
          ["Changed", <When key="changed" at={instantOf(found.updated_at)} />],
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
      {asked === "save" && <SaveDialog {...{ found, text, onDone }} onClose={close} />}
      {asked === "delete" && (
        <Confirm
          title={`Delete policy ${plain(found.name)}?`}
          verb="Delete the policy"
          act={() => deletePolicy(scope, found.id)}
          done="Policy deleted"
          onDone={() => go(hrefOf(["policies"]))}
          onClose={close}
        >
          <p>What it denied is granted again to the roles that have it.</p>
        </Confirm>
      )}
    </div>
  );
}

function SaveDialog(props: {
  found: PolicyData;
  text: TypedPolicy;
  onDone: () => void;
  onClose: () => void;
}) {
  const { found, text, onDone, onClose } = props;
  const [reason, setReason] = useState("");
  const submit = async () => {
    const body = { ...text, ...(reason && { change_reason: reason }) };
    const { version } = await changePolicy(accessScope(), found.id, body);
    toast("done", `${plain(found.name)} is at version ${count(version)}`);
    onDone();
  };
  return (
    <FormDialog title={`Save ${plain(found.name)}?`} submit="Save" onSubmit={submit} onClose={onClose}>
      <JsonDiff before={textOf(found)} after={text} />
      <Field label="Reason" value={reason} onInput={setReason} hint="Kept with the version." />
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
              <Button icon="undo" onClick={() => setRolled(version)}>
                Roll back to this…
              </Button>
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
