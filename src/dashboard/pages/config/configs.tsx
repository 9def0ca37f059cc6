import { parsedJson } from "../../lib/api.ts";
import { listConfigs, putConfig } from "../../lib/config.ts";
import { count, counted, plain } from "../../lib/format.ts";
import { useFollowed, useLoaded } from "../../lib/hooks.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { aboutRead, Text, When } from "../../ui/basics.tsx";
import { type DialogEnds, Field, FormDialog, useFields } from "../../ui/dialog.tsx";
import { ResourceList } from "../../ui/resource.tsx";

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
