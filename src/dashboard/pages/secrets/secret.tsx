import { count, plain } from "../../lib/format.ts";
import { useFollowed, useLoaded } from "../../lib/hooks.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { Empty, Facts, Failure, Page, Section, Text, When } from "../../ui/basics.tsx";
import { type ChangeEnds, ConfirmOpener, Field, FormDialog, Opener, useFields } from "../../ui/dialog.tsx";
import { useOne } from "../../ui/resource.tsx";
import { Status } from "../../ui/status.tsx";
import { ReadTable } from "../../ui/table.tsx";
import {
  deleteSecret,
  getSecret,
  listRevisions,
  listUsers,
  patchSecret,
  putSecret,
  type SecretData,
  ValueField,
} from "./secrets.tsx";

export function SecretPage() {
  const { value: secret, reload: onDone, unread } = useOne({ one: "secret", all: "secrets" }, getSecret);
  useFollowed(onDone, { frames: "system.secret.>" });
  if (!secret) return unread;
  return (
    <Page
      title={<Text of={secret.name} />}
      about={secret.description && <Text of={secret.description} />}
      actions={
        may("secrets:manage") && (
          <>
            <Opener kind="primary" icon="edit" text="Set the value…">
              {(onClose) => <SetDialog {...{ secret, onDone, onClose }} />}
            </Opener>
            <Opener text="Rename or describe…">
              {(onClose) => <DescribeDialog {...{ secret, onDone, onClose }} />}
            </Opener>
            <ConfirmOpener
              text="Delete…"
              icon="trash"
              title={`Delete ${plain(secret.name)}?`}
              verb="Delete the secret"
              act={() => deleteSecret(secret.name)}
              done="Secret deleted"
              onDone={() => go(hrefOf(["secrets"]))}
            >
              <p>Runs of functions that declare it begin without it.</p>
            </ConfirmOpener>
          </>
        )
      }
    >
      <Facts
        of={[
          ["Revision", count(secret.revision)],
          ["Changed", <When key="changed" at={secret.updated_at} />],
          ["Created", <When key="created" at={secret.created_at} />],
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
    </Page>
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
      empty="No function declares it"
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
            <When at={updated_at} />
          </span>
        </li>
      ))}
    </ul>
  );
}

function SetDialog({ secret, ...ends }: ChangeEnds & { secret: SecretData }) {
  const [{ value }, field] = useFields({ value: "" });
  const submit = async () => {
    const { revision } = await putSecret(secret.name, value);
    return `${plain(secret.name)} is at revision ${count(revision)}`;
  };
  return (
    <FormDialog title={`Set ${plain(secret.name)}`} submit="Set" onSubmit={submit} {...ends}>
      <p>Jobs that are given out from now on carry the new value.</p>
      <ValueField {...field("value")} />
    </FormDialog>
  );
}

function DescribeDialog({ secret, onDone, onClose }: ChangeEnds & { secret: SecretData }) {
  const first = { name: secret.name, description: secret.description ?? "" };
  const [{ name, description }, field] = useFields(first);
  const submit = async () => {
    await patchSecret(secret.name, { ...(name !== secret.name && { name }), description });
    if (name === secret.name) onDone();
    else go(hrefOf(["secrets", name]));
    return `${plain(name)} changed`;
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
        {...field("name")}
        hint="Functions that declare the old name get no value any more."
      />
      <Field label="Description" {...field("description")} />
    </FormDialog>
  );
}
