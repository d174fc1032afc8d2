"""Images, quotas, prices and types of the emulated AWS, as the real clients read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.lab.aws.account import LINE, PARAMETER, SPOT, Account, HandClock, opened, refused
from tests.lab.aws.codes import aws_fault

G_ON_DEMAND, G_SPOT = "L-DB2E81BA", "L-3819A6DF"


@pytest.fixture
def account() -> Iterator[Account]:
    with opened() as each:
        yield each


def test_a_public_parameter_names_an_image_that_can_be_described(account: Account) -> None:
    for region in ("us-east-1", "eu-west-1"):
        found = account.client("ssm", region).get_parameter(Name=PARAMETER)["Parameter"]
        images = account.client("ec2", region).describe_images(ImageIds=[found["Value"]])
        image = images["Images"][0]
        assert image["Name"].endswith("PyTorch 2.9 (Ubuntu 24.04) 20260317")
        assert image["CreationDate"] == "2026-03-17T03:14:15.000Z"
        assert (image["RootDeviceName"], image["State"]) == ("/dev/sda1", "available")
        assert image["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == 45
        account.launch(region, ImageId=found["Value"])


def test_a_line_that_is_gone_is_not_found(account: Account) -> None:
    ssm = account.client("ssm")
    gone = PARAMETER.replace("2.9-ubuntu-24.04", "2.6-ubuntu-22.04")
    with refused("ParameterNotFound"):
        ssm.get_parameter(Name=gone)
    several = ssm.get_parameters(Names=[gone, PARAMETER])
    assert [each["Name"] for each in several["Parameters"]] == [PARAMETER]
    assert several["InvalidParameters"] == [gone]
    account.cloud.images.drop_parameter(LINE)
    with refused("ParameterNotFound"):
        ssm.get_parameter(Name=PARAMETER)


def test_lines_are_listed_by_path_page_by_page(account: Account) -> None:
    pages = account.client("ssm").get_paginator("get_parameters_by_path")
    path = "/aws/service/deeplearning/ami/x86_64/"
    found = [
        each["Name"]
        for page in pages.paginate(Path=path, Recursive=True, PaginationConfig={"PageSize": 2})
        for each in page["Parameters"]
    ]
    assert PARAMETER in found
    assert len(found) == len(set(found)) > 2 * 2  # of several pages
    shallow = account.client("ssm").get_parameters_by_path(Path=path, Recursive=False)
    assert shallow["Parameters"] == []


def test_images_are_found_by_owner_and_name_too(account: Account) -> None:
    pattern = "Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.9 (Ubuntu 24.04) *"
    filters = [
        {"Name": "name", "Values": [pattern]},
        {"Name": "state", "Values": ["available"]},
    ]
    found = account.client("ec2").describe_images(Owners=["amazon"], Filters=filters)["Images"]
    assert sorted(each["CreationDate"][:10] for each in found) == ["2026-01-12", "2026-03-17"]


def test_an_image_can_be_gone_while_its_parameter_stays(account: Account) -> None:
    account.launch()
    account.cloud.images.deregister(LINE)
    image = account.client("ssm").get_parameter(Name=PARAMETER)["Parameter"]["Value"]
    with refused("InvalidAMIID.NotFound"):
        account.launch(ImageId=image)
    with refused("InvalidAMIID.NotFound"):
        account.client("ec2").describe_images(ImageIds=[image])


def test_an_amazon_linux_image_has_another_user_and_disk(account: Account) -> None:
    line = LINE.replace("ubuntu-24.04", "amazon-linux-2023")
    image = account.cloud.images.id_of(line, "us-east-1")
    found = account.client("ec2").describe_images(ImageIds=[image])["Images"][0]
    assert found["RootDeviceName"] == "/dev/xvda"
    account.launch(ImageId=image)
    assert account.machines.booted[0].default_user == "ec2-user"


def test_quotas_are_told_and_enforced(account: Account) -> None:
    quotas = account.client("service-quotas")
    account.cloud.quotas["us-east-1", G_ON_DEMAND] = 8
    account.cloud.quotas["us-east-1", G_SPOT] = 4
    told = quotas.get_service_quota(ServiceCode="ec2", QuotaCode=G_ON_DEMAND)["Quota"]
    assert (told["Value"], told["QuotaName"]) == (8.0, "Running On-Demand G and VT instances")
    first = account.launch()["InstanceId"]
    account.launch()
    with refused("VcpuLimitExceeded"):
        account.launch()
    account.launch(InstanceMarketOptions=SPOT)
    with refused("MaxSpotInstanceCountExceeded"):
        account.launch(InstanceMarketOptions=SPOT)
    account.launch("us-west-2")
    account.launch(InstanceType="m5.large")
    account.client("ec2").terminate_instances(InstanceIds=[first])
    account.launch()


def test_a_quota_without_an_applied_value_has_its_default(account: Account) -> None:
    quotas = account.client("service-quotas")
    account.cloud.quotas["us-east-1", G_ON_DEMAND] = None
    asked = {"ServiceCode": "ec2", "QuotaCode": G_ON_DEMAND}
    with refused("NoSuchResourceException"):
        quotas.get_service_quota(**asked)
    assert quotas.get_aws_default_service_quota(**asked)["Quota"]["Value"] == 0.0
    with refused("VcpuLimitExceeded"):
        account.launch()
    pages = quotas.get_paginator("list_service_quotas").paginate(
        ServiceCode="ec2", PaginationConfig={"PageSize": 3}
    )
    codes = [each["QuotaCode"] for page in pages for each in page["Quotas"]]
    assert len(codes) == len(set(codes)) == 8
    assert G_ON_DEMAND not in codes
    with refused("NoSuchResourceException"):
        quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-00000000")


def test_quotas_can_be_forbidden(account: Account) -> None:
    account.cloud.faults.always("GetServiceQuota", aws_fault("AccessDeniedException"))
    with refused("AccessDeniedException"):
        account.client("service-quotas").get_service_quota(ServiceCode="ec2", QuotaCode=G_ON_DEMAND)


def _products(account: Account, service: str, **wanted: str) -> list[Any]:
    filters = [
        {"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()
    ]
    pages = account.client("pricing").get_paginator("get_products")
    found = pages.paginate(ServiceCode=service, Filters=filters, PaginationConfig={"PageSize": 5})
    return [json.loads(text) for page in found for text in page["PriceList"]]


def _usd(product: dict[str, Any]) -> tuple[str, str]:
    (term,) = product["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    return dimension["pricePerUnit"]["USD"], dimension["unit"]


def test_the_price_list_has_one_product_for_the_full_question(account: Account) -> None:
    question = {
        "instanceType": "g5.xlarge",
        "regionCode": "us-east-1",
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "capacitystatus": "Used",
        "preInstalledSw": "NA",
        "marketoption": "OnDemand",
    }
    (product,) = _products(account, "AmazonEC2", **question)
    assert _usd(product) == ("1.0060000000", "Hrs")
    assert product["product"]["attributes"]["usagetype"] == "BoxUsage:g5.xlarge"
    loose = _products(account, "AmazonEC2", instanceType="g5.xlarge", regionCode="us-east-1")
    assert len({each["product"]["sku"] for each in loose}) == len(loose) == 8
    account.cloud.prices.on_demand["us-east-1", "g5.xlarge"] = Decimal("2.5")
    assert _usd(_products(account, "AmazonEC2", **question)[0])[0] == "2.5000000000"


def test_disks_and_addresses_have_prices(account: Account) -> None:
    (disk,) = _products(account, "AmazonEC2", volumeApiName="gp3", regionCode="us-east-1")
    assert _usd(disk) == ("0.0800000000", "GB-Mo")
    addresses = _products(
        account, "AmazonVPC", group="VPCPublicIPv4Address", regionCode="us-east-1"
    )
    usage = {each["product"]["attributes"]["usagetype"]: _usd(each)[0] for each in addresses}
    assert usage["PublicIPv4:InUseAddress"] == "0.0050000000"


def test_spot_prices_come_newest_first_and_by_zone() -> None:
    clock = HandClock()
    with opened(clock=clock) as account:
        ec2, now = account.client("ec2"), clock.now
        account.cloud.prices.spot_history["us-east-1a", "g5.xlarge"] = [
            (now - timedelta(hours=9), Decimal("0.40")),
            (now - timedelta(hours=2), Decimal("0.425")),
            (now - timedelta(hours=1), Decimal("0.43")),
        ]
        question = {"InstanceTypes": ["g5.xlarge"], "ProductDescriptions": ["Linux/UNIX"]}
        rows = ec2.describe_spot_price_history(**question, StartTime=now)["SpotPriceHistory"]
        prices = {row["AvailabilityZone"]: row["SpotPrice"] for row in rows}
        assert prices == {
            "us-east-1a": "0.430000",
            "us-east-1b": "0.436000",
            "us-east-1c": "0.451000",
        }
        since = ec2.describe_spot_price_history(
            **question, StartTime=now - timedelta(hours=3), AvailabilityZone="us-east-1a"
        )["SpotPriceHistory"]
        assert [row["SpotPrice"] for row in since] == ["0.430000", "0.425000", "0.400000"]
        assert since[0]["Timestamp"] == datetime(2026, 11, 21, 11, 0, tzinfo=UTC)


def test_a_bid_under_the_market_is_refused(account: Account) -> None:
    low = {**SPOT, "SpotOptions": {**SPOT["SpotOptions"], "MaxPrice": "0.1"}}
    with refused("SpotMaxPriceTooLow"):
        account.launch(InstanceMarketOptions=low)
    high = {**SPOT, "SpotOptions": {**SPOT["SpotOptions"], "MaxPrice": "1.006"}}
    account.launch(InstanceMarketOptions=high)


def test_instance_types_and_where_they_are_offered(account: Account) -> None:
    ec2 = account.client("ec2")
    found = ec2.describe_instance_types(InstanceTypes=["g5.xlarge"])["InstanceTypes"][0]
    assert found["VCpuInfo"]["DefaultVCpus"] == 4
    assert found["GpuInfo"]["Gpus"][0]["Name"] == "A10G"
    offered = ec2.describe_instance_type_offerings(
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": ["g5.xlarge"]}],
    )["InstanceTypeOfferings"]
    assert "us-east-1e" not in {each["Location"] for each in offered}
    assert len(offered) == 5
    zones = ec2.describe_availability_zones()["AvailabilityZones"]
    assert {each["ZoneName"]: each["ZoneId"] for each in zones}["us-east-1a"].startswith("use1-az")
    who = account.client("sts").get_caller_identity()
    assert who["Account"] == "123456789012"


def test_a_machine_reports_the_wrong_device_where_a_test_says_so(account: Account) -> None:
    account.cloud.devices.update({"g5.xlarge": "L4", "g6.xlarge": ""})
    account.launch()
    account.launch(InstanceType="g6.xlarge")
    account.launch(InstanceType="p5.4xlarge")
    assert [spec.device for spec in account.machines.booted] == ["L4", "", "H100"]


def test_one_account_after_another_begins_empty() -> None:
    for _ in range(3):
        with opened() as account:
            assert account.client("ec2").describe_instances()["Reservations"] == []
            account.launch()
            with pytest.raises(RuntimeError, match="running in this process already"), opened():
                pass


def test_what_the_lab_lacks_fails_the_test_in_the_end(account: Account) -> None:
    account.launch()
    with pytest.raises(ClientError) as caught:
        account.client("ec2").describe_instances(Filters=[{"Name": "no-such", "Values": ["x"]}])
    assert caught.value.response["Error"]["Code"] == "InternalError"
    assert len(account.cloud.crashes) == 1
    with pytest.raises(RuntimeError, match="the emulated AWS broke"):
        account.cloud.raise_crashes()
    account.cloud.crashes.clear()
