/** A plan as a graph: the server places the nodes, the page draws them. */
import { useState } from "preact/hooks";

import type { PlanLayout, PlanNode } from "../../data/schema";
import { formatCount, formatNumber } from "../../format";
import { Choice } from "../../parts/actions";
import { Name, StateMark, TaskName } from "../../parts/basics";
import { Icon } from "../../parts/Icon";
import { to, toOne } from "../../router";
import { t } from "../../text";

type View = "graph" | "list";

/** Members as they go through their lives, those that need a look last. */
const ORDER = ["done", "running", "ready", "scheduled", "blocked", "cancelled", "dead"] as const;
const SQUARES_MAX = 300;
const PAD = 8;
// A box of a group shows its members: its rows stand further apart than the server's.
const STRETCH = 1.15;
const GROUP_STRETCH = 2.4;

interface GraphProps {
  layout: PlanLayout;
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
  const stretch = layout.nodes.some(isGroup) ? GROUP_STRETCH : STRETCH;
  const boxes = layout.nodes.map((node): Box => ({ node, x: node.x, y: (node.y + layout.node_height / 2) * stretch, width: layout.node_width }));
  const byId = new Map(boxes.map((box) => [box.node.id, box]));
  const width = layout.width + PAD;
  const height = layout.height * stretch + PAD;
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label={t("plan.graph.label", { n: layout.nodes.length })}>
      <div class="graph" style={{ inlineSize: `${width}px`, blockSize: `${height}px` }}>
        <svg width={width} height={height} aria-hidden="true">
          {layout.edges.map((edge) => {
            const from = byId.get(edge["from"] ?? "");
            const end = byId.get(edge["to"] ?? "");
            const state = from?.node.state;
            return from && end && <path d={curve(from, end)} class={state === "dead" ? "er" : state === "done" ? "on" : undefined} />;
          })}
        </svg>
        {boxes.map((box) => (
          <NodeBox box={box} plan={plan} />
        ))}
      </div>
    </div>
  );
}

interface Box {
  node: PlanNode;
  x: number;
  /** Of its middle. */
  y: number;
  width: number;
}

function NodeBox({ box, plan }: { box: Box; plan: string }) {
  const { node } = box;
  const place = { insetInlineStart: `${box.x}px`, insetBlockStart: `${box.y}px`, inlineSize: `${box.width}px` };
  if (node.kind === "join") return <i class="joint" style={{ insetInlineStart: `${box.x}px`, insetBlockStart: `${box.y}px` }} />;
  const state = node.state;
  return (
    <a class={isGroup(node) ? "node grp3" : "node"} href={hrefOf(node, plan)} data-s={state ?? "off"} style={place}>
      <span class="st" data-s={state ?? "off"}>
        <Icon name={state ? `s-${state}` : "dots"} />
        <b>
          <Name text={node.label} />
        </b>
      </span>
      {isGroup(node) ? <Members node={node} /> : <small>{state ? t(`state.${state}`) : t("plan.gone")}</small>}
    </a>
  );
}

/** One square per member, up to 300; above that the counts say it. */
function Members({ node }: { node: PlanNode }) {
  const states = ORDER.map((state) => [state, node.states?.[state] ?? 0] as const).filter(([, n]) => n > 0);
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
  const nodes = layout.nodes.filter((node) => node.kind !== "join").sort((a, b) => a.layer - b.layer || a.y - b.y);
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
                {node.state && <StateMark state={node.state} />}
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
  if (node.plan) return toOne("plans", node.plan);
  return node.job ? toOne("jobs", node.job) : to("jobs", { q: `plan:${plan}${node.task ? ` task:${node.task}` : ""}` });
}

function isGroup(node: PlanNode): boolean {
  return node.kind === "group";
}

function curve(from: Box, end: Box): string {
  const x1 = from.x + (from.node.kind === "join" ? 0 : from.width);
  const middle = (x1 + end.x) / 2;
  return `M${x1} ${from.y}C${middle} ${from.y} ${middle} ${end.y} ${end.x} ${end.y}`;
}
