/** A plan as a graph: the server places the nodes, the page draws them. */
import { useState } from "preact/hooks";

import type { PlanDetail, PlanNode } from "../../data/schema";
import { STATES } from "../../data/schema";
import { formatCount, formatNumber } from "../../format";
import { Choice } from "../../parts/actions";
import { Name, StateMark, TaskName } from "../../parts/basics";
import { Icon } from "../../parts/Icon";
import { to, toOne } from "../../router";
import { t } from "../../text";

type Layout = NonNullable<PlanDetail["layout"]>;
type View = "graph" | "list";

const NODE_WIDTH = 168;
const NODE_HEIGHT = 44;
const GROUP_HEIGHT = 92;
const SQUARES_MAX = 300;
const PAD = 24;

interface GraphProps {
  layout: Layout;
  plan: string;
}

export function Graph({ layout, plan }: GraphProps) {
  const [view, setView] = useState<View>("graph");
  return (
    <section class="sec">
      <div class="ch">
        <Choice
          label={t("plan.view")}
          value={view}
          options={[
            ["graph", t("plan.graph")],
            ["list", t("plan.list")],
          ]}
          onChange={setView}
        />
        <ul class="legend end">
          {(["done", "running", "ready", "scheduled", "blocked", "dead"] as const).map((state) => (
            <li>
              <Icon name={`s-${state}`} state={state} class="c" />
              {t(`state.${state}`)}
            </li>
          ))}
        </ul>
      </div>
      {view === "graph" ? <Picture layout={layout} plan={plan} /> : <NodeList layout={layout} plan={plan} />}
    </section>
  );
}

function Picture({ layout, plan }: GraphProps) {
  const nodes = new Map(layout.nodes.map((node) => [node.id, node]));
  const width = Math.max(layout.width, ...layout.nodes.map((node) => node.x + NODE_WIDTH)) + PAD;
  const height = Math.max(layout.height, ...layout.nodes.map((node) => node.y + heightOf(node) / 2)) + PAD;
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label={t("plan.graph.label", { n: layout.nodes.length })}>
      <div class="graph" style={{ inlineSize: `${width}px`, blockSize: `${height}px` }}>
        <svg width={width} height={height} aria-hidden="true">
          {layout.edges.map((edge) => {
            const from = nodes.get(edge.from);
            const end = nodes.get(edge.to);
            return from && end && <path d={curve(from, end)} class={from.state === "dead" ? "er" : from.state === "done" ? "on" : undefined} />;
          })}
        </svg>
        {layout.nodes.map((node) => (
          <NodeBox node={node} plan={plan} />
        ))}
      </div>
    </div>
  );
}

function NodeBox({ node, plan }: { node: PlanNode; plan: string }) {
  const isGroup = (node.count ?? 0) > 1;
  const place = { insetInlineStart: `${node.x}px`, insetBlockStart: `${node.y}px`, inlineSize: `${NODE_WIDTH}px` };
  return (
    <a class={isGroup ? "node grp3" : "node"} href={hrefOf(node, plan)} data-s={node.state} style={place}>
      <span class="st" data-s={node.state}>
        <Icon name={`s-${node.state}`} />
        <b>
          <Name text={node.label} />
        </b>
      </span>
      {isGroup ? <Members node={node} /> : <small>{t(`state.${node.state}`)}</small>}
    </a>
  );
}

/** One square per member, up to 300; above that the counts say it. */
function Members({ node }: { node: PlanNode }) {
  const states = STATES.map((state) => [state, node.states?.[state] ?? 0] as const).filter(([, n]) => n > 0);
  const all = states.reduce((sum, [, n]) => sum + n, 0);
  return (
    <>
      <small>{t("plan.members", { n: node.count ?? all })}</small>
      {all <= SQUARES_MAX && (
        <span class="waffle" aria-hidden="true">
          {states.flatMap(([state, n]) => Array.from({ length: n }, () => <i data-s={state} />))}
        </span>
      )}
      <span class="legend">
        {states.map(([state, n]) => (
          <span class="st" data-s={state}>
            <Icon name={`s-${state}`} />
            {formatNumber(n)}
          </span>
        ))}
      </span>
    </>
  );
}

/** The same as a table: for a narrow window, and for who cannot see the picture. */
function NodeList({ layout, plan }: GraphProps) {
  const nodes = [...layout.nodes].sort((a, b) => a.layer - b.layer || a.y - b.y);
  return (
    <div class="scroll">
      <table class="tbl">
        <thead>
          <tr>
            <th>{t("col.state")}</th>
            <th>{t("plan.node")}</th>
            <th>{t("col.task")}</th>
            <th class="n">{t("plan.step")}</th>
            <th class="n">{t("nav.jobs")}</th>
          </tr>
        </thead>
        <tbody>
          {nodes.map((node) => (
            <tr>
              <td>
                <StateMark state={node.state} />
              </td>
              <td>
                <a class="t" href={hrefOf(node, plan)}>
                  <Name text={node.label} />
                </a>
              </td>
              <td class="q2">{node.task && <TaskName name={node.task} />}</td>
              <td class="n q2">{node.layer + 1}</td>
              <td class="n">{formatCount(node.count ?? 1)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function hrefOf(node: PlanNode, plan: string): string {
  return node.job ? toOne("jobs", node.job) : to("jobs", { q: `plan:${plan}${node.task ? ` task:${node.task}` : ""}` });
}

function heightOf(node: PlanNode): number {
  return (node.count ?? 0) > 1 ? GROUP_HEIGHT : NODE_HEIGHT;
}

function curve(from: PlanNode, end: PlanNode): string {
  const x1 = from.x + NODE_WIDTH;
  const middle = (x1 + end.x) / 2;
  return `M${x1} ${from.y}C${middle} ${from.y} ${middle} ${end.y} ${end.x} ${end.y}`;
}
