import type { Static } from "@sinclair/typebox";
import type { SecretShape, SecretUsersShape } from "../../../domain/engine/secrets/operations.ts";
import { rest, unlessMissing } from "../../lib/api.ts";
import { count, plain } from "../../lib/format.ts";
import { useFollowed, useLoaded } from "../../lib/hooks.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { Text, When } from "../../ui/basics.tsx";
import { type DialogEnds, Field, FormDialog, useFields } from "../../ui/dialog.tsx";
import { ResourceList } from "../../ui/resource.tsx";

/** What is known of a secret: never its value. */
export type SecretData = Static<typeof SecretShape>;

export type SecretUser = Static<typeof SecretUsersShape>["functions"][number];

const secretsPath = "/api/v1/secrets";
const pathOf = (name: string) => `${secretsPath}/${encodeURIComponent(name)}`;

const listSecrets = (signal?: AbortSignal): Promise<SecretData[]> => rest(secretsPath, { signal });

export const getSecret = (name: string, signal?: AbortSignal): Promise<SecretData> =>
  rest(pathOf(name), { signal });

/** As many earlier revisions as are shown at once. */
const revisionsShown = 10;

/** What was known of the secret at its last revisions, newest first; those that are not kept are left out. */
export async function listRevisions(
  { name, revision }: SecretData,
  signal?: AbortSignal,
): Promise<SecretData[]> {
  const first = Math.max(1, revision - revisionsShown);
  const asked = Array.from({ length: revision - first }, (_, index) => revision - 1 - index);
  const found = await Promise.all(
    asked.map((one) => unlessMissing(rest<SecretData>(`${pathOf(name)}?revision=${one}`, { signal }))),
  );
  return found.filter((one) => one !== undefined);
}

export const listUsers = async (name: string, signal?: AbortSignal): Promise<SecretUser[]> =>
  (await rest<{ functions: SecretUser[] }>(`${pathOf(name)}/functions`, { signal })).functions;

const createSecret = (body: { name: string; value: string; description?: string }) =>
  rest<SecretData>(secretsPath, { body });

export const putSecret = (name: string, value: string) =>
  rest<SecretData>(pathOf(name), { method: "PUT", body: { value } });

export const patchSecret = (name: string, body: { name?: string; description?: string }) =>
  rest<SecretData>(pathOf(name), { method: "PATCH", body });

export const deleteSecret = (name: string): Promise<void> => rest(pathOf(name), { method: "DELETE" });

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
