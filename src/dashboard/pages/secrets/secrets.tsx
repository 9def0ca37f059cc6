import { count, plain } from "../../lib/format.ts";
import { useFollowed, useLoaded } from "../../lib/hooks.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { createSecret, listSecrets } from "../../lib/secrets.ts";
import { Text, When } from "../../ui/basics.tsx";
import { type DialogEnds, Field, FormDialog, useFields } from "../../ui/dialog.tsx";
import { ResourceList } from "../../ui/resource.tsx";

export function SecretsPage() {
  const read = useLoaded((signal) => listSecrets(signal), []);
  useFollowed(read.reload, { frames: "system.secret.>" });
  return (
    <ResourceList
      title="Secrets"
      about="Values reach the workers of functions that declare them, and no page."
      makes={{ text: "New secret…", icon: "plus", needs: "secrets:manage", dialog: NewSecret }}
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
        { name: "Changed", isNumber: true, of: ({ updated_at }) => <When at={updated_at} /> },
        { name: "Created", isNumber: true, of: ({ created_at }) => <When at={created_at} /> },
      ]}
      empty="No secrets"
      docs="state"
      says="A function that declares a secret gets its value with each job."
    />
  );
}

/** The field of a value that no answer ever holds. */
export const ValueField = (props: { value: string; onInput: (value: string) => void }) => (
  <Field
    label="Value"
    type="password"
    autoComplete="new-password"
    isRequired
    {...props}
    hint="Sealed when it is stored; it is never shown again."
  />
);

function NewSecret({ onClose }: DialogEnds) {
  const [{ name, value, description }, field] = useFields({ name: "", value: "", description: "" });
  const submit = async () => {
    await createSecret({ name, value, ...(description && { description }) });
    go(hrefOf(["secrets", name]));
    return `Secret ${plain(name)} made`;
  };
  return (
    <FormDialog title="New secret" submit="Make" onSubmit={submit} onClose={onClose}>
      <Field label="Name" isRequired {...field("name")} hint="Such as STRIPE_KEY" />
      <ValueField {...field("value")} />
      <Field label="Description" {...field("description")} />
    </FormDialog>
  );
}
