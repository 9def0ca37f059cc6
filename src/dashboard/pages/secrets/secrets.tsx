import { useState } from "preact/hooks";
import { count, instantOf, plain } from "../../lib/format.ts";
import { useLive, useLoaded, useNet } from "../../lib/hooks.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { createSecret, listSecrets } from "../../lib/secrets.ts";
import { may } from "../../lib/session.ts";
import { toast } from "../../lib/toasts.ts";
import { Button, Empty, PageHead, Text, When } from "../../ui/basics.tsx";
import { Field, FormDialog } from "../../ui/dialog.tsx";
import { ReadTable } from "../../ui/table.tsx";

export function SecretsPage() {
  const [isMaking, setMaking] = useState(false);
  const read = useLoaded((signal) => listSecrets(signal), []);
  useLive("system.secret.>", { onFrame: read.reload, onBack: read.reload });
  useNet(read.reload);
  return (
    <div class="page">
      <PageHead
        title="Secrets"
        about="Values reach the workers of functions that declare them, and no page."
        actions={
          may("secrets:manage") && (
            <Button kind="primary" icon="plus" onClick={() => setMaking(true)}>
              New secret…
            </Button>
          )
        }
      />
      <ReadTable
        read={read}
        keyOf={({ name }) => name}
        columns={[
          {
            name: "Secret",
            of: ({ name, description }) => (
              <>
                <Text of={name} href={hrefOf(["secrets", name])} />
                {description && <Text of={description} in="span" class="under" />}
              </>
            ),
          },
          { name: "Revision", isNumber: true, of: ({ revision }) => count(revision) },
          { name: "Changed", isNumber: true, of: ({ updated_at }) => <When at={instantOf(updated_at)} /> },
          { name: "Created", isNumber: true, of: ({ created_at }) => <When at={instantOf(created_at)} /> },
        ]}
        empty={
          <Empty title="No secrets" says="A function that declares a secret gets its value with each job." />
        }
      />
      {isMaking && <NewSecret onClose={() => setMaking(false)} />}
    </div>
  );
}

/** The field of a value that no answer ever holds. */
export const ValueField = ({ value, onInput }: { value: string; onInput: (value: string) => void }) => (
  <Field
    label="Value"
    type="password"
    autoComplete="new-password"
    isRequired
    value={value}
    onInput={onInput}
    hint="Sealed when it is stored; it is never shown again."
  />
);

function NewSecret({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [value, setValue] = useState("");
  const [description, setDescription] = useState("");
  const submit = async () => {
    await createSecret({ name, value, ...(description && { description }) });
    toast("done", `Secret ${plain(name)} made`);
    go(hrefOf(["secrets", name]));
  };
  return (
    <FormDialog title="New secret" submit="Make" onSubmit={submit} onClose={onClose}>
      <Field label="Name" isRequired value={name} onInput={setName} hint="Such as STRIPE_KEY" />
      <ValueField value={value} onInput={setValue} />
      <Field label="Description" value={description} onInput={setDescription} />
    </FormDialog>
  );
}
