import { useEffect, useState } from "preact/hooks";
import { count, instantOf, plain } from "../../lib/format.ts";
import { useLive, useLoaded, useNet } from "../../lib/hooks.ts";
import { noteRecent } from "../../lib/prefs.ts";
import { address, go, hrefOf } from "../../lib/router.ts";
import {
  deleteSecret,
  getSecret,
  listRevisions,
  listUsers,
  patchSecret,
  putSecret,
  type SecretData,
} from "../../lib/secrets.ts";
import { may } from "../../lib/session.ts";
import { toast } from "../../lib/toasts.ts";
import { Button, Empty, Facts, Failure, PageHead, Section, Text, Unread, When } from "../../ui/basics.tsx";
import { Confirm, Field, FormDialog } from "../../ui/dialog.tsx";
import { Status } from "../../ui/status.tsx";
import { ReadTable } from "../../ui/table.tsx";
import { ValueField } from "./secrets.tsx";

export function SecretPage() {
  const name = address.value.rest[0] ?? "";
  const { value, error, reload } = useLoaded((signal) => getSecret(name, signal), [name]);
  useLive("system.secret.>", { onFrame: reload, onBack: reload });
  useNet(reload);
  useEffect(() => noteRecent("secrets", name), [name]);
  if (!value) return <Unread error={error} onRetry={reload} one="secret" all="secrets" />;
  return <SecretInside secret={value} onDone={reload} />;
}

type SecretDeed = "set" | "describe" | "delete";

function SecretInside({ secret, onDone }: { secret: SecretData; onDone: () => void }) {
  const [asked, setAsked] = useState<SecretDeed>();
  const close = () => setAsked(undefined);
  return (
    <div class="page">
      <PageHead
        title={<Text of={secret.name} />}
        about={secret.description && <Text of={secret.description} />}
        actions={
          may("secrets:manage") && (
            <>
              <Button kind="primary" icon="edit" onClick={() => setAsked("set")}>
                Set the value…
              </Button>
              <Button onClick={() => setAsked("describe")}>Rename or describe…</Button>
              <Button icon="trash" onClick={() => setAsked("delete")}>
                Delete…
              </Button>
            </>
          )
        }
      />
      <Facts
        of={[
          ["Revision", count(secret.revision)],
          ["Changed", <When key="changed" at={instantOf(secret.updated_at)} />],
          ["Created", <When key="created" at={instantOf(secret.created_at)} />],
        ]}
      />
      <div class="columns spaced">
        <Section title="Functions whose runs get it">
          {may("functions:read") ? (
            <Users name={secret.name} />
          ) : (
            <Empty title="Your roles show no functions" />
          )}
        </Section>
        <Section title="Earlier revisions">
          <Revisions secret={secret} />
        </Section>
      </div>
      {asked === "set" && <SetDialog secret={secret} onDone={onDone} onClose={close} />}
      {asked === "describe" && <DescribeDialog secret={secret} onDone={onDone} onClose={close} />}
      {asked === "delete" && (
        <Confirm
          title={`Delete ${plain(secret.name)}?`}
          verb="Delete the secret"
          act={() => deleteSecret(secret.name)}
          done="Secret deleted"
          onDone={() => go(hrefOf(["secrets"]))}
          onClose={close}
        >
          <p>Runs of functions that declare it begin without it.</p>
        </Confirm>
      )}
    </div>
  );
}

function Users({ name }: { name: string }) {
  const read = useLoaded((signal) => listUsers(name, signal), [name]);
  return (
    <ReadTable
      read={read}
      keyOf={({ id }) => id}
      columns={[
        { name: "Function", of: ({ id }) => <Text of={id} href={hrefOf(["functions", id])} /> },
        { name: "Status", of: ({ status }) => <Status of={status} /> },
        { name: "Version", isNumber: true, of: ({ version }) => count(version) },
      ]}
      empty={<Empty title="No function declares it" />}
    />
  );
}

function Revisions({ secret }: { secret: SecretData }) {
  const { value, error, reload } = useLoaded(
    (signal) => listRevisions(secret, signal),
    [secret.name, secret.revision],
  );
  if (error !== undefined) return <Failure error={error} onRetry={reload} />;
  if (value?.length === 0) return <Empty title="There is no earlier value" />;
  return (
    <ul class="plain-list">
      {value?.map(({ revision, updated_at }) => (
        <li key={revision}>
          <strong class="number">{count(revision)}</strong>
          <span class="faint">
            <When at={instantOf(updated_at)} />
          </span>
        </li>
      ))}
    </ul>
  );
}

function SetDialog(props: { secret: SecretData; onDone: () => void; onClose: () => void }) {
  const { secret, onDone, onClose } = props;
  const [value, setValue] = useState("");
  const submit = async () => {
    const { revision } = await putSecret(secret.name, value);
    toast("done", `${plain(secret.name)} is at revision ${count(revision)}`);
    onDone();
  };
  return (
    <FormDialog title={`Set ${plain(secret.name)}`} submit="Set" onSubmit={submit} onClose={onClose}>
      <p>Jobs that are given out from now on carry the new value.</p>
      <ValueField value={value} onInput={setValue} />
    </FormDialog>
  );
}

function DescribeDialog(props: { secret: SecretData; onDone: () => void; onClose: () => void }) {
  const { secret, onDone, onClose } = props;
  const [name, setName] = useState(secret.name);
  const [description, setDescription] = useState(secret.description ?? "");
  const submit = async () => {
    await patchSecret(secret.name, { ...(name !== secret.name && { name }), description });
    toast("done", `${plain(name)} changed`);
    if (name === secret.name) onDone();
    else go(hrefOf(["secrets", name]));
  };
  return (
    <FormDialog
      title={`Rename or describe ${plain(secret.name)}`}
      submit="Save"
      onSubmit={submit}
      onClose={onClose}
    >
      <Field
        label="Name"
        isRequired
        value={name}
        onInput={setName}
        hint="Functions that declare the old name get no value any more."
      />
      <Field label="Description" value={description} onInput={setDescription} />
    </FormDialog>
  );
}
