//! What PostgreSQL's clients do: tables, transactions for pgbench, and what must hold of them at any time.

/// Which transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// TPC-B's, as pgbench has it.
    TpcB,
    /// Tables and five transactions after TPC-C, in its mix, with a tenth of its customers and items, no
    /// remote warehouses, no waits and none that are rolled back: not the benchmark, whose numbers no figure
    /// of this is.
    TpcC,
}

impl Workload {
    /// What makes its tables, for so many branches or warehouses; none: pgbench does.
    pub(super) fn tables(self, scale: u32) -> Option<String> {
        match self {
            Workload::TpcB => None,
            Workload::TpcC => Some([TABLES, FUNCTIONS].concat().replace("SCALE", &scale.to_string())),
        }
    }

    /// Its scripts and their weights, each a transaction with an entry in the ledger.
    pub(super) fn scripts(self) -> Vec<(u32, String)> {
        match self {
            Workload::TpcB => vec![(1, TPC_B.to_owned())],
            Workload::TpcC => TPC_C.iter().map(|(weight, call)| (*weight, transaction(call))).collect(),
        }
    }

    /// A question whose answer is empty, or rows of what is wrong.
    pub(super) fn wrong(self) -> &'static str {
        match self {
            Workload::TpcB => SUMS,
            Workload::TpcC => CONDITIONS,
        }
    }
}

/// TPC-B's, as pgbench has it, and an entry in the ledger in the same transaction.
const TPC_B: &str = "\\set aid random(1, 100000 * :scale)
\\set bid random(1, 1 * :scale)
\\set tid random(1, 10 * :scale)
\\set delta random(-5000, 5000)
begin;
update pgbench_accounts set abalance = abalance + :delta where aid = :aid;
update pgbench_tellers set tbalance = tbalance + :delta where tid = :tid;
update pgbench_branches set bbalance = bbalance + :delta where bid = :bid;
insert into pgbench_history (tid, bid, aid, delta, mtime) values (:tid, :bid, :aid, :delta, current_timestamp);
insert into ledger (client) values (:client_id);
end;
";

/// TPC-B's condition: balances of accounts, branches, tellers and history have one sum.
const SUMS: &str = "\
    select * from (select \
        (select coalesce(sum(abalance), 0) from pgbench_accounts) as accounts, \
        (select coalesce(sum(bbalance), 0) from pgbench_branches) as branches, \
        (select coalesce(sum(tbalance), 0) from pgbench_tellers) as tellers, \
        (select coalesce(sum(delta), 0) from pgbench_history) as history) as sums \
    where not (accounts = branches and accounts = tellers and accounts = history)";

fn transaction(call: &str) -> String {
    format!(
        "\\set w random(1, :scale)
\\set d random(1, 10)
\\set c random(1, 300)
\\set n random(5, 15)
\\set amount random(1, 5000)
begin;
select {call};
insert into ledger (client) values (:client_id);
end;
"
    )
}

/// TPC-C's transactions and their parts of a hundred (clause 5.2.3: at least 43, 4, 4 and 4, the rest the
/// first).
const TPC_C: [(u32, &str); 5] = [
    (45, "do_new_order(:w, :d, :c, :n)"),
    (43, "do_payment(:w, :d, :c, :amount)"),
    (4, "do_order_status(:w, :d, :c)"),
    (4, "do_delivery(:w, :d)"),
    (4, "do_stock_level(:w, :d, :n)"),
];

/// After clause 1.3, with what the transactions need, and fillers that make rows about as long.
const TABLES: &str = "
create table warehouse (w_id int primary key, w_ytd numeric not null, w_info char(80));
create table district (w_id int, d_id int, d_ytd numeric not null, d_next_o_id int not null, d_info char(80),
    primary key (w_id, d_id));
create table customer (w_id int, d_id int, c_id int, c_balance numeric not null, c_ytd_payment numeric not null,
    c_payment_cnt int not null, c_delivery_cnt int not null, c_data char(500), primary key (w_id, d_id, c_id));
create table history (w_id int, d_id int, c_id int, h_amount numeric not null, h_date timestamp);
create table item (i_id int primary key, i_price numeric not null, i_info char(60));
create table stock (w_id int, i_id int, s_quantity int not null, s_ytd int not null, s_order_cnt int not null,
    s_info char(290), primary key (w_id, i_id));
create table orders (w_id int, d_id int, o_id int, c_id int not null, o_ol_cnt int not null, o_carrier_id int,
    o_entry_d timestamp, primary key (w_id, d_id, o_id));
create index on orders (w_id, d_id, c_id, o_id);
create table new_order (w_id int, d_id int, o_id int, primary key (w_id, d_id, o_id));
create table order_line (w_id int, d_id int, o_id int, ol_number int, i_id int not null, ol_quantity int not null,
    ol_amount numeric not null, ol_delivery_d timestamp, ol_info char(24), primary key (w_id, d_id, o_id, ol_number));
insert into item select i, 1 + i % 100, 'item' from generate_series(1, 10000) i;
insert into warehouse select w, 300000, 'warehouse' from generate_series(1, SCALE) w;
insert into district select w_id, d, 30000, 1, 'district' from warehouse, generate_series(1, 10) d;
insert into customer select w_id, d_id, c, -10, 10, 1, 0, 'customer' from district, generate_series(1, 300) c;
insert into stock select w_id, i_id, 10 + i_id % 91, 0, 0, 'stock' from warehouse, item;
analyze;
";

/// After clauses 2.4 to 2.8. Rows are locked in one order, so that no two transactions wait for each other.
const FUNCTIONS: &str = "
create function do_new_order(w int, d int, c int, lines int) returns void language plpgsql as $$
declare
    o int;
    line record;
begin
    update district set d_next_o_id = d_next_o_id + 1 where w_id = w and d_id = d returning d_next_o_id - 1 into o;
    insert into orders values (w, d, o, c, lines, null, now());
    insert into new_order values (w, d, o);
    for line in
        select row_number() over (order by i) as number, i, q from (select 1 + floor(random() * 10000)::int as i,
            1 + floor(random() * 10)::int as q from generate_series(1, lines)) as picked order by i
    loop
        update stock set s_quantity = s_quantity - line.q + case when s_quantity >= line.q + 10 then 0 else 91 end,
            s_ytd = s_ytd + line.q, s_order_cnt = s_order_cnt + 1 where w_id = w and i_id = line.i;
        insert into order_line
            select w, d, o, line.number, line.i, line.q, line.q * i_price, null, 'line' from item where i_id = line.i;
    end loop;
end $$;
create function do_payment(w int, d int, c int, amount numeric) returns void language plpgsql as $$
begin
    update warehouse set w_ytd = w_ytd + amount where w_id = w;
    update district set d_ytd = d_ytd + amount where w_id = w and d_id = d;
    update customer set c_balance = c_balance - amount, c_ytd_payment = c_ytd_payment + amount,
        c_payment_cnt = c_payment_cnt + 1 where w_id = w and d_id = d and c_id = c;
    insert into history values (w, d, c, amount, now());
end $$;
create function do_order_status(w int, d int, c int) returns numeric language sql as $$
    select sum(ol_amount) from order_line where w_id = w and d_id = d and o_id =
        (select max(o_id) from orders where w_id = w and d_id = d and c_id = c)
$$;
create function do_delivery(w int, carrier int) returns void language plpgsql as $$
declare
    o int;
    c int;
begin
    for d in 1..10 loop
        select o_id into o from new_order where w_id = w and d_id = d order by o_id limit 1 for update;
        continue when not found;
        delete from new_order where w_id = w and d_id = d and o_id = o;
        update orders set o_carrier_id = carrier where w_id = w and d_id = d and o_id = o returning c_id into c;
        update order_line set ol_delivery_d = now() where w_id = w and d_id = d and o_id = o;
        update customer set c_delivery_cnt = c_delivery_cnt + 1, c_balance = c_balance +
            (select sum(ol_amount) from order_line where w_id = w and d_id = d and o_id = o)
            where w_id = w and d_id = d and c_id = c;
    end loop;
end $$;
create function do_stock_level(w int, d int, threshold int) returns bigint language sql as $$
    select count(distinct stock.i_id) from district
        join order_line l on l.w_id = w and l.d_id = d and l.o_id >= d_next_o_id - 20
        join stock on stock.w_id = w and stock.i_id = l.i_id and s_quantity < threshold
        where district.w_id = w and district.d_id = d
$$;
";

/// Clause 3.3.2, conditions 1 to 4 and 12: the number of one that does not hold, and the warehouse, district
/// and customer.
const CONDITIONS: &str = "\
    select 1, w_id, 0, 0 from warehouse \
        where w_ytd <> (select sum(d_ytd) from district where district.w_id = warehouse.w_id) \
    union all select 2, w_id, d_id, 0 from district \
        where d_next_o_id - 1 <> (select coalesce(max(o_id), 0) from orders o \
            where o.w_id = district.w_id and o.d_id = district.d_id) \
        or d_next_o_id - 1 <> (select coalesce(max(o_id), d_next_o_id - 1) from new_order n \
            where n.w_id = district.w_id and n.d_id = district.d_id) \
    union all select 3, w_id, d_id, 0 from new_order \
        group by w_id, d_id having max(o_id) - min(o_id) + 1 <> count(*) \
    union all select 4, w_id, d_id, 0 from district \
        where (select coalesce(sum(o_ol_cnt), 0) from orders o where o.w_id = district.w_id and o.d_id = district.d_id) \
        <> (select count(*) from order_line l where l.w_id = district.w_id and l.d_id = district.d_id) \
    union all select 12, c.w_id, c.d_id, c.c_id from customer c \
        where c_balance <> (select coalesce(sum(ol_amount), 0) from orders o join order_line l \
            using (w_id, d_id, o_id) where o.w_id = c.w_id and o.d_id = c.d_id and o.c_id = c.c_id \
            and ol_delivery_d is not null) \
        - c_ytd_payment";
