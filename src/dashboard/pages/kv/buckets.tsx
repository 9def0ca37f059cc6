import { useState } from "preact/hooks";
import { bytes, count, counted, duration, instantOf, plain } from "../../lib/format.ts";
import { useChanged, useLoaded, useNet } from "../../lib/hooks.ts";
import { type BucketData, createBucket, listBuckets } from "../../lib/kv.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { toast } from "../../lib/toasts.ts";
import { Button, Empty, PageHead, Text, When } from "../../ui/basics.tsx";
import { Field, FormDialog } from "../../ui/dialog.tsx";
import { type Column, ReadTable } from "../../ui/table.tsx";

export const bytesOf = ({ bytes: used, max_bytes }: BucketData): string =>
  max_bytes === undefined ? bytes(used) : `${bytes(used)} of ${bytes(max_bytes)}`;

export const keptFor = ({ ttl_seconds }: BucketData): string =>
  ttl_seconds === undefined ? "until deleted" : duration(ttl_seconds * 1_000);

const columns: readonly Column<BucketData>[] = [
  {
    name: "Bucket",
    of: ({ name, description }) => (
      <>
        <Text of={name} href={hrefOf(["kv", name])} />
        {description && <Text of={description} in="span" class="under" />}
      </>
    ),
  },
  { name: "Values", isNumber: true, of: ({ values }) => count(values) },
  { name: "Size", isNumber: true, of: bytesOf },
  { name: "History", isNumber: true, of: ({ history }) => count(history) },
  { name: "Kept", of: keptFor },
  { name: "Created", isNumber: true, of: ({ created_at }) => <When at={instantOf(created_at)} /> },
];

export function BucketsPage() {
  const [isMaking, setMaking] = useState(false);
  const read = useLoaded((signal) => listBuckets(signal), []);
  useChanged("kv", read.reload);
  useNet(read.reload);
  return (
    <div class="page">
      <PageHead
        title="Key-value"
        about={read.value ? counted(read.value.length, "bucket") : "Reading…"}
        actions={
          may("secrets:manage") && (
            <Button kind="primary" icon="plus" onClick={() => setMaking(true)}>
              New bucket…
            </Button>
          )
        }
      />
      <ReadTable
        {...{ read, columns }}
        keyOf={({ name }) => name}
        empty={
          <Empty title="No buckets" says="A bucket holds keys with their values, each with a revision." />
        }
      />
      {isMaking && <NewBucket onClose={() => setMaking(false)} />}
    </div>
  );
}

const numberOf = (typed: string): number | undefined => (typed === "" ? undefined : Number(typed));

function NewBucket({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [description, setDescription] = useState("");
  const [ttl, setTtl] = useState("");
  const [history, setHistory] = useState("5");
  const submit = async () => {
    await createBucket({
      ...{ name, ...(description && { description }) },
      ...{ ttl_seconds: numberOf(ttl), history: numberOf(history) },
    });
    toast("done", `Bucket ${plain(name)} made`);
    go(hrefOf(["kv", name]));
  };
  return (
    <FormDialog title="New bucket" submit="Make" onSubmit={submit} onClose={onClose}>
      <Field label="Name" isRequired value={name} onInput={setName} hint="Letters, digits, _ and -" />
      <Field label="Description" value={description} onInput={setDescription} />
      <Field
        label="Seconds that values are kept"
        type="number"
        value={ttl}
        onInput={setTtl}
        hint="Empty: until they are deleted."
      />
      <Field
        label="Values kept of each key"
        type="number"
        value={history}
        onInput={setHistory}
        hint="The newest included: 1 to 64."
      />
    </FormDialog>
  );
}
