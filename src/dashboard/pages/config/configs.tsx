import { useState } from "preact/hooks";
import { parsedJson } from "../../lib/api.ts";
import { listConfigs, putConfig } from "../../lib/config.ts";
import { count, counted, instantOf, plain } from "../../lib/format.ts";
import { useLive, useLoaded, useNet } from "../../lib/hooks.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { toast } from "../../lib/toasts.ts";
import { Button, Empty, PageHead, Text, When } from "../../ui/basics.tsx";
import { Field, FormDialog } from "../../ui/dialog.tsx";
import { ReadTable } from "../../ui/table.tsx";

/** Changes of documents, whatever their names. */
export const configFrames = "system.config.>";

export function ConfigsPage() {
  const [isMaking, setMaking] = useState(false);
  const read = useLoaded((signal) => listConfigs(signal), []);
  useLive(configFrames, { onFrame: read.reload, onBack: read.reload });
  useNet(read.reload);
  return (
    <div class="page">
      <PageHead
        title="Config"
        about={read.value ? counted(read.value.length, "document") : "Reading…"}
        actions={
          may("secrets:manage") && (
            <Button kind="primary" icon="plus" onClick={() => setMaking(true)}>
              New document…
            </Button>
          )
        }
      />
      <ReadTable
        read={read}
        keyOf={({ name }) => name}
        columns={[
          { name: "Document", of: ({ name }) => <Text of={name} href={hrefOf(["config", name])} /> },
          { name: "Revision", isNumber: true, of: ({ revision }) => count(revision) },
          { name: "Changed", isNumber: true, of: ({ updatedAt }) => <When at={instantOf(updatedAt)} /> },
        ]}
        empty={
          <Empty
            title="No documents"
            says="Functions read a config document by its name, and hear when it changes."
          />
        }
      />
      {isMaking && <NewConfig onClose={() => setMaking(false)} />}
    </div>
  );
}

function NewConfig({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [text, setText] = useState("{}");
  const submit = async () => {
    await putConfig(name, parsedJson(text, "document"), 0);
    toast("done", `Document ${plain(name)} made`);
    go(hrefOf(["config", name]));
  };
  return (
    <FormDialog title="New document" submit="Make" onSubmit={submit} onClose={onClose}>
      <Field label="Name" isRequired value={name} onInput={setName} hint="Letters, digits, _, - and dots" />
      <Field label="Document (JSON)" isCode rows={12} value={text} onInput={setText} />
    </FormDialog>
  );
}
