import type { Static } from "@sinclair/typebox";
import type { Document, Kept } from "../../../domain/state/config/operations.ts";
import { parsedJson, rest } from "../../lib/api.ts";
import { count, counted, plain } from "../../lib/format.ts";
import { useFollowed, useLoaded } from "../../lib/hooks.ts";
import { go, hrefOf, queryOf } from "../../lib/router.ts";
import { aboutRead, Text, When } from "../../ui/basics.tsx";
import { type DialogEnds, Field, FormDialog, useFields } from "../../ui/dialog.tsx";
import { ResourceList } from "../../ui/resource.tsx";

/** A document, as `GET /api/v1/config/{name}` says; without data, it is deleted. */
export type ConfigData = Static<typeof Document>;

export type ConfigChangeData = Static<typeof Kept>;

const pathOf = (name: string) => `/api/v1/config/${encodeURIComponent(name)}`;

const listConfigs = async (signal?: AbortSignal) =>
  (await rest<{ configs: Omit<ConfigData, "data">[] }>("/api/v1/config", { signal })).configs;

export const getConfig = (name: string, revision = "", signal?: AbortSignal): Promise<ConfigData> =>
  rest(`${pathOf(name)}${queryOf({ revision })}`, { signal });

export const listConfigChanges = async (name: string, signal?: AbortSignal): Promise<ConfigChangeData[]> =>
  (await rest<{ history: ConfigChangeData[] }>(`${pathOf(name)}/history`, { signal })).history;

/** `found` is what was read: another revision by now refuses it. 0 makes a document that is not there. */
export const putConfig = (name: string, data: unknown, found: number): Promise<{ revision: number }> =>
  rest(pathOf(name), {
    body: data,
    headers: found === 0 ? { "If-None-Match": "*" } : { "If-Match": `${found}` },
  });

export const rollbackConfig = (name: string, revision: number): Promise<{ revision: number }> =>
  rest(`${pathOf(name)}/rollback/${revision}`, { method: "POST" });

export const deleteConfig = (name: string, found: number): Promise<void> =>
  rest(pathOf(name), { method: "DELETE", headers: { "If-Match": `${found}` } });

/** Changes of documents, whatever their names. */
export const configFrames = "system.config.>";

export function ConfigsPage() {
  const read = useLoaded((signal) => listConfigs(signal), []);
  useFollowed(read.reload, { frames: configFrames });
  return (
    <ResourceList
      title="Config"
      about={aboutRead(read, (all) => counted(all.length, "document"))}
      makes={{ text: "New document…", icon: "plus", needs: "secrets:manage", dialog: NewConfig }}
      read={read}
      keyOf={({ name }) => name}
      columns={[
        { name: "Document", of: ({ name }) => <Text of={name} href={hrefOf(["config", name])} /> },
        { name: "Revision", isNumber: true, of: ({ revision }) => count(revision) },
        { name: "Changed", isNumber: true, of: ({ updatedAt }) => <When at={updatedAt} /> },
      ]}
      empty="No documents"
      docs="state"
      says="Functions read a config document by its name, and hear when it changes."
    />
  );
}

function NewConfig({ onClose }: DialogEnds) {
  const [{ name, text }, field] = useFields({ name: "", text: "{}" });
  const submit = async () => {
    await putConfig(name, parsedJson(text, "document"), 0);
    go(hrefOf(["config", name]));
    return `Document ${plain(name)} made`;
  };
  return (
    <FormDialog title="New document" submit="Make" onSubmit={submit} onClose={onClose}>
      <Field label="Name" isRequired {...field("name")} hint="Letters, digits, _, - and dots" />
      <Field label="Document (JSON)" isCode rows={12} {...field("text")} />
    </FormDialog>
  );
}
