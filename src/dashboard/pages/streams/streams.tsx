import { useState } from "preact/hooks";
import { parsedJson, rpc } from "../../lib/api.ts";
import { count } from "../../lib/format.ts";
import { useLive, usePages } from "../../lib/hooks.ts";
import { address, go, hrefOf, setQuery } from "../../lib/router.ts";
import { listStreams, type StreamView } from "../../lib/streams.ts";
import { Empty, SearchFilter, Text, When } from "../../ui/basics.tsx";
import { Check, type DialogEnds, Field, FormDialog, useFields } from "../../ui/dialog.tsx";
import { ResourceList } from "../../ui/resource.tsx";
import { Status } from "../../ui/status.tsx";

/** Appends to `stream`, or to an entity that is named: then the stream must be new. */
export function AppendDialog({ stream, onClose }: DialogEnds & { stream?: StreamView }) {
  const [{ entityId, entityType, eventName, text }, field] = useFields({
    ...{ entityId: stream?.id ?? "", entityType: stream?.type ?? "", eventName: "", text: "{}" },
  });
  const [expects, setExpects] = useState(true);
  const submit = async () => {
    const { entityVersion } = await rpc("EntityStreamService", "AppendEvent", {
      ...{ entityId, entityType, eventName, dataValue: parsedJson(text, "data") },
      expectedVersion: expects ? `${stream?.version ?? 0}` : "-1",
    });
    if (!stream) go(hrefOf(["streams", entityId]));
    return `Appended; the stream is at version ${entityVersion}`;
  };
  return (
    <FormDialog title="Append an event" submit="Append" onSubmit={submit} onClose={onClose}>
      {!stream && (
        <>
          <Field label="Entity" isRequired {...field("entityId")} hint="Such as order-17" />
          <Field label="Type" isRequired {...field("entityType")} hint="Such as order" />
        </>
      )}
      <Field
        label="Event"
        isRequired
        {...field("eventName")}
        hint="Such as order.placed. It starts runs as an emitted event does."
      />
      <Field label="Data (JSON)" isCode rows={8} {...field("text")} />
      <Check
        label={
          stream
            ? `Only if the stream is still at version ${stream.version}`
            : "Only if the entity has no stream yet"
        }
        isChecked={expects}
        onChange={setExpects}
      />
    </FormDialog>
  );
}

export function StreamsPage() {
  const { query } = address.value;
  const search = query.get("q") ?? "";
  const entityType = query.get("type") ?? "";
  const includeDeleted = query.get("deleted") === "yes";
  const read = usePages(
    (cursor, signal) => listStreams({ search, entityType, includeDeleted }, cursor, signal),
    [search, entityType, includeDeleted],
  );
  useLive("system.stream.>", { onFrame: read.reload, onBack: read.reload });
  return (
    <ResourceList
      title="Streams"
      about="What happened to each entity"
      makes={{ text: "Append…", icon: "plus", needs: "entities:append", dialog: AppendDialog }}
      read={read}
      keyOf={({ id }) => id}
      empty={
        <Empty
          title={search || entityType ? "No entities match" : "No streams yet"}
          docs={search || entityType ? undefined : "streams-projections"}
        >
          {!search && !entityType && <p>An append to an entity begins its stream.</p>}
        </Empty>
      }
      columns={[
        {
          name: "Entity",
          of: ({ id, isDeleted }) =>
            isDeleted ? (
              <>
                <Text of={id} /> <Status of="deleted" />
              </>
            ) : (
              <Text of={id} href={hrefOf(["streams", id])} />
            ),
        },
        { name: "Type", of: ({ type }) => <Text of={type} /> },
        { name: "Version", isNumber: true, of: ({ version }) => count(version) },
        { name: "Began", isNumber: true, of: ({ createdAt }) => <When at={createdAt} /> },
        { name: "Changed", isNumber: true, of: ({ updatedAt }) => <When at={updatedAt} /> },
      ]}
    >
      <SearchFilter label="Search entities" placeholder="Part of an id">
        <input
          class="filter-text"
          type="search"
          aria-label="Type of entity"
          placeholder="Type"
          value={entityType}
          onInput={({ currentTarget: { value } }) => setQuery({ type: value })}
        />
        <Check
          label="With deleted ones"
          isChecked={includeDeleted}
          onChange={(is) => setQuery({ deleted: is ? "yes" : undefined })}
        />
      </SearchFilter>
    </ResourceList>
  );
}
