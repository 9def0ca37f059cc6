import { useState } from "preact/hooks";
import { count, plain } from "../../lib/format.ts";
import { type FunctionView, listFunctions } from "../../lib/functions.ts";
import { useFollowed, useLoaded } from "../../lib/hooks.ts";
import { address, hrefOf, setQuery } from "../../lib/router.ts";
import { aboutRead, Button, Empty, Failure, Page, Text, When } from "../../ui/basics.tsx";
import { Icon } from "../../ui/icons.tsx";
import { Status } from "../../ui/status.tsx";
import { Table } from "../../ui/table.tsx";

const pageRows = 100;

/** What starts the function, in a few words. */
export function Triggers({ of }: { of: FunctionView }) {
  if (of.triggers.length === 0) return <span class="faint">invoked by name</span>;
  return (
    <span class="triggers">
      {of.triggers.map(({ event, cron, expression }, index) => (
        <span key={index} class="trigger" title={expression ? plain(expression) : undefined}>
          <Icon name={cron ? "clock" : "events"} size={12} />
          <Text of={event || cron || ""} />
          {expression && <span class="tag">if</span>}
        </span>
      ))}
    </span>
  );
}

export function FunctionsPage() {
  const name = address.value.query.get("q") ?? "";
  const [pagesShown, setPagesShown] = useState(1);
  const { value, error, reload } = useLoaded(
    async (signal) => {
      const functions: FunctionView[] = [];
      let cursor = "";
      let totalCount = 0;
      for (let page = 0; page < pagesShown; page++) {
        const asked = { limit: pageRows, ...(name && { name }), ...(cursor && { cursor }) };
        const found = await listFunctions(asked, signal);
        functions.push(...found.functions);
        ({ nextCursor: cursor, totalCount } = found);
        if (cursor === "") break;
      }
      return { functions, totalCount, hasMore: cursor !== "" };
    },
    [name, pagesShown],
  );
  useFollowed(reload, { frames: "system.function.>" });
  const functions = value?.functions ?? [];
  return (
    <Page
      title="Functions"
      about={aboutRead({ value, error }, (all) => `${count(all.totalCount)} in this environment`)}
    >
      <search class="filters">
        <span class="filter-search">
          <Icon name="search" />
          <input
            type="search"
            aria-label="Search functions"
            placeholder="Id or name"
            value={name}
            onInput={({ currentTarget: { value: typed } }) => setQuery({ q: typed })}
          />
        </span>
      </search>
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {value && functions.length === 0 && (
        <Empty title="No functions">
          {name === "" ? (
            <p>
              {"A worker registers its functions when it starts: "}
              <a href="/docs/start">the first steps</a>.
            </p>
          ) : (
            <p>None has that in its id or name.</p>
          )}
        </Empty>
      )}
      {functions.length > 0 && (
        <Table
          label="Functions"
          rows={functions}
          keyOf={({ id }) => id}
          columns={[
            {
              name: "Function",
              of: ({ id, name: named }) => (
                <>
                  <Text of={named} href={hrefOf(["functions", id])} />
                  {named !== id && <Text of={id} in="code" class="under" />}
                </>
              ),
            },
            { name: "Status", of: ({ status }) => <Status of={status} /> },
            { name: "Started by", of: (one) => <Triggers of={one} /> },
            { name: "Version", isNumber: true, of: ({ version }) => version },
            { name: "Changed", isNumber: true, of: ({ updatedAt }) => <When at={updatedAt} /> },
          ]}
        />
      )}
      {value?.hasMore && <Button onClick={() => setPagesShown(pagesShown + 1)}>Show more</Button>}
    </Page>
  );
}
