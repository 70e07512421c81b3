{{ config(materialized="table") }}

select
    partner.partner_id,
    partner.name,
    partner.country,
    count(delivery.id) as deliveries,
    coalesce(sum(delivery.net_price), 0) as revenue
from {{ source("settlement", "partner_info") }} as partner
left join {{ source("settlement", "settlement_normal_delivery_detail") }} as delivery
    on delivery.partner_id = partner.partner_id and delivery.status in ('billed', 'paid')
group by all
