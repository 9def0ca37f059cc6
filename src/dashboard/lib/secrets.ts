import type { Static } from "@sinclair/typebox";
import type { SecretShape, SecretUsersShape } from "../../domain/engine/secrets/operations.ts";
import { rest, unlessMissing } from "./api.ts";

/** What is known of a secret: never its value. */
export type SecretData = Static<typeof SecretShape>;

export type SecretUser = Static<typeof SecretUsersShape>["functions"][number];

const secretsPath = "/api/v1/secrets";
const pathOf = (name: string) => `${secretsPath}/${encodeURIComponent(name)}`;

export const listSecrets = (signal?: AbortSignal): Promise<SecretData[]> => rest(secretsPath, { signal });

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

export const createSecret = (body: { name: string; value: string; description?: string }) =>
  rest<SecretData>(secretsPath, { body });

export const putSecret = (name: string, value: string) =>
  rest<SecretData>(pathOf(name), { method: "PUT", body: { value } });

export const patchSecret = (name: string, body: { name?: string; description?: string }) =>
  rest<SecretData>(pathOf(name), { method: "PATCH", body });

export const deleteSecret = (name: string): Promise<void> => rest(pathOf(name), { method: "DELETE" });
