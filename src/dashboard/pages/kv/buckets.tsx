import { bytes, count, counted, duration, plain } from "../../lib/format.ts";
import { useFollowed, useLoaded } from "../../lib/hooks.ts";
import { type BucketData, createBucket, listBuckets } from "../../lib/kv.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { aboutRead, Text, When } from "../../ui/basics.tsx";
import { type DialogEnds, Field, FormDialog, useFields } from "../../ui/dialog.tsx";
import { ResourceList } from "../../ui/resource.tsx";
import type { Column } from "../../ui/table.tsx";

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
  { name: "Created", isNumber: true, of: ({ created_at }) => <When at={created_at} /> },
];

export function BucketsPage() {
  const read = useLoaded((signal) => listBuckets(signal), []);
  useFollowed(read.reload, { list: "kv" });
  return (
    <ResourceList
      title="Key-value"
      about={aboutRead(read, (all) => counted(all.length, "bucket"))}
      makes={{ text: "New bucket…", icon: "plus", needs: "secrets:manage", dialog: NewBucket }}
      {...{ read, columns }}
      keyOf={({ name }) => name}
      empty="No buckets"
      docs="state"
      says="A bucket holds keys with their values, each with a revision."
    />
  );
}

const numberOf = (typed: string): number | undefined => (typed === "" ? undefined : Number(typed));

function NewBucket({ onClose }: DialogEnds) {
  const [typed, field] = useFields({ name: "", description: "", ttl: "", history: "5" });
  const submit = async () => {
    const { name, description, ttl, history } = typed;
    await createBucket({
      ...{ name, ...(description && { description }) },
      ...{ ttl_seconds: numberOf(ttl), history: numberOf(history) },
    });
    go(hrefOf(["kv", name]));
    return `Bucket ${plain(name)} made`;
  };
  return (
    <FormDialog title="New bucket" submit="Make" onSubmit={submit} onClose={onClose}>
      <Field label="Name" isRequired {...field("name")} hint="Letters, digits, _ and -" />
      <Field label="Description" {...field("description")} />
      <Field
        label="Seconds that values are kept"
        type="number"
        {...field("ttl")}
        hint="Empty: until they are deleted."
      />
      <Field
        label="Values kept of each key"
        type="number"
        {...field("history")}
        hint="The newest included: 1 to 64."
      />
    </FormDialog>
  );
}
