"""The words that ``generate.py`` makes product names of. All brands are invented."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BRANDS", "COLOURS", "CURRENCIES", "GROUPS", "QUALITIES", "Group"]


class Group(NamedTuple):
    """Things of one kind: the shelf's SKU code and name, nouns in English and elsewhere, sizes that suit them,
    whether they come in colours, and from–to of price (euro cents) and weight (grams)."""

    code: str
    shelf: str
    nouns: str
    foreign: str
    sizes: str
    coloured: bool
    cents: tuple[int, int]
    grams: tuple[int, int]


BRANDS = [
    "Alderholt",
    "Amberline",
    "Arvela",
    "Bergmoen",
    "Brightwell & Sons",
    "Casa Lumo",
    "Cobalt Lane",
    "Corvane",
    "Dröm",
    "Eiderfell",
    "Ékla",
    "Fennwick",
    "Fjordhus",
    "Grünwerk",
    "Halcyon",
    "Hearthmoor",
    "Hokuto Works",
    "Ilmari",
    "Juniper & Rye",
    "Kestrel",
    "Kolibřík",
    "Lagom",
    "Lindqvist",
    "Maison Veyre",
    "Marrow",
    "Mistral Sud",
    "Nantoria",
    "Nordhavn",
    "O'Dell",
    "Orvieta",
    "Ostwind",
    "Papillon Bleu",
    "Pequeño Sol",
    "Quillfeather",
    "Ravenna",
    "Rosalund",
    "Saltmarsh",
    "Sierra Clara",
    "Stonecrop",
    "Tallgrass",
    "Tamsin",
    "Umbra Nova",
    "Valdør",
    "Vetterlin",
    "Wattle",
    "Wolkenstein",
    "Xylo",
    "Yarrow",
    "Zephyrine",
    "Żubrówek",
]

QUALITIES = [
    "Classic",
    "Compact",
    "Everyday",
    "Deluxe",
    "Recycled",
    "Handmade",
    "Heavy-Duty",
    "Lightweight",
    "Travel",
    "Family",
    "Studio",
    "Original",
    "Heritage",
    "Limited Edition",
    "Essential",
    "Premium",
]

COLOURS = (
    ("Black", "BLK"), ("White", "WHT"), ("Navy", "NVY"), ("Olive", "OLV"), ("Terracotta", "TER"), ("Sand", "SND"),
    ("Forest Green", "GRN"), ("Burgundy", "BUR"), ("Slate", "SLT"), ("Mustard", "MUS"), ("Sky Blue", "SKY"),
)  # fmt: skip

#: Currency and roughly what a euro costs in it, in hundredths.
CURRENCIES = (
    *(("EUR", 100),) * 7,
    ("USD", 109), ("GBP", 85), ("CHF", 95), ("PLN", 428), ("CZK", 2510), ("SEK", 1125), ("JPY", 16200),
)  # fmt: skip

GROUPS = (
    Group("KIT", "Kitchen", "Saucepan|Frying Pan|Sauté Pan|Mixing Bowl|Colander|Wok|Springform Tin|Chef's Knife",
          "Brotbackform|Poêle à crêpes|Olla exprés|Hrnec s pokličkou|Κατσαρόλα|Сковорода чугунная|炒锅|Tencere",
          "16 cm|18 cm|20 cm|24 cm|28 cm", False, (990, 14900), (180, 3800)),
    Group("KIT", "Kitchen", "Measuring Jug|French Press|Storage Jar|Carafe|Teapot|Milk Frother",
          "Schöpfkanne|Cafetière italienne|Dzbanek|Džbán|急須 常滑焼|주전자|Çaydanlık|Кувшин",
          "0.5 l|0.8 l|1 l|1.5 l|2.5 l", True, (590, 6900), (150, 1400)),
    Group("GRO", "Groceries", "Rolled Oats|Basmati Rice|Red Lentils|Sea Salt Flakes|Espresso Beans|Green Tea|Couscous",
          "Müsli mit Nüssen|Pimentón ahumado|Гречка ядрица|龙井茶|زعتر بلدي|Bulgur ince|Kasza gryczana|Bryndza ovčí",
          "100 g|250 g|400 g|500 g|1 kg", False, (89, 1890), (100, 1100)),
    Group("GRO", "Groceries", "Acacia Honey|Peanut Butter|Raspberry Jam|Dark Chocolate 70 %|Tahini|Wholegrain Mustard",
          "Weißwurstsenf|Crème de marrons|Ogórki kiszone|Ελιές Καλαμών|味噌|고추장|טחינה גולמית|Варенье вишнёвое",
          "180 g|250 g|340 g|6 × 50 g", False, (149, 1290), (190, 650)),
    Group("GRO", "Groceries", "Olive Oil|Apple Juice|Tomato Passata|Elderflower Cordial|Cider Vinegar",
          "Kürbiskernöl|Vinaigre de cidre|Aceite de oliva|Sok z czarnej porzeczki|Ελαιόλαδο|醤油|Nước mắm|Nar ekşisi",
          "250 ml|500 ml|750 ml|1 l", False, (129, 2490), (280, 1500)),
    Group("CLO", "Clothing", "T-Shirt|Rain Jacket|Linen Shirt|Hooded Sweatshirt|Chinos|Down Vest|Cardigan|Pyjamas",
          "Lodenjacke|Marinière rayée|Camisa de lino|Kożuch|Svetr z vlny|Ζακέτα πλεκτή|Свитер шерстяной|浴衣|旗袍",
          "XS|S|M|L|XL|XXL", True, (990, 19900), (140, 1600)),
    Group("CLO", "Clothing", "Merino Socks|Leather Boots|Canvas Trainers|Felt Slippers|Sandals",
          "Hausschuhe|Chaussures d'été|Alpargatas|Kapcie|Bačkory|Παντόφλες|Валенки|下駄|고무신|Terlik",
          "36|37|38|39|40|41|42|43|44|45", True, (690, 15900), (60, 1300)),
    Group("TOY", "Toys", "Jigsaw Puzzle|Building Blocks|Marble Run|Wooden Train Set|Memory Game",
          "Holzeisenbahn|Würfelspiel|Rompecabezas|Klocki drewniane|Stavebnice|Παζλ|Конструктор|積み木|블록 세트|积木",
          "24 pieces|48 pieces|100 pieces|500 pieces|1000 pieces", False, (690, 8900), (120, 3200)),
    Group("TOY", "Toys", "Plush Bear|Plush Rabbit|Rag Doll|Rocking Sheep|Soft Elephant",
          "Plüschigel|Peluche éléphant|Osito de peluche|Miś pluszowy|Plyšový krtek|Αρκουδάκι|Матрёшка|だるま|곰인형",
          "18 cm|25 cm|30 cm|45 cm", False, (790, 5900), (80, 1500)),
    Group("GAR", "Garden", "Pruning Shears|Hand Trowel|Bird Feeder|Rain Gauge|Solar Lantern|Leaf Rake",
          "Rosenschere|Sécateur|Tijeras de podar|Sekator ogrodowy|Zahradní nůžky|Лопата штыковая|剪定ばさみ|호미",
          "single|set of 2|set of 3", False, (450, 6900), (120, 2600)),
    Group("GAR", "Garden", "Watering Can|Compost Bin|Planter|Rain Barrel|Potting Soil",
          "Gießkanne|Arrosoir en zinc|Maceta de barro|Doniczka|Květináč|Γλάστρα|Лейка|植木鉢|Saksı",
          "5 l|10 l|20 l|40 l", True, (350, 12900), (300, 9000)),
    Group("OFF", "Office", "Notebook|Sketch Pad|Weekly Planner|Ring Binder|Document Wallet",
          "Füllerheft|Cahier à spirale|Cuaderno|Zeszyt w kratkę|Sešit linkovaný|Τετράδιο|Тетрадь в клетку|공책",
          "A4|A5|A6", True, (120, 2900), (60, 900)),
    Group("OFF", "Office", "Highlighters|Gel Pens|Pencils HB|Paper Clips|Sticky Notes",
          "Heftklammern|Trombones dorés|Lápices|Ołówki|Tužky č. 2|Μολύβια|Карандаши|筆ペン|毛笔|Kurşun kalem",
          "pack of 5|pack of 12|pack of 50", False, (150, 1900), (15, 400)),
    Group("BTH", "Bath & Body", "Shampoo|Hand Cream|Shower Gel|Body Scrub|Sun Cream SPF 50|Beard Oil",
          "Badeöl Fichtennadel|Crème à la lavande|Gel de aloe|Szampon pokrzywowy|Σαμπουάν|Шампунь|椿油|Gül suyu",
          "50 ml|75 ml|200 ml|400 ml", False, (290, 4900), (60, 480)),
    Group("BTH", "Bath & Body", "Bar Soap|Solid Shampoo|Bath Salts|Shaving Soap",
          "Badesalz|Savon de Marseille|Jabón de oliva|Mydło dziegciowe|Mýdlo s heřmánkem|Σαπούνι|Мыло дегтярное",
          "90 g|100 g|150 g|3 × 100 g", False, (190, 1900), (80, 340)),
    Group("ELE", "Electronics", "USB-C Cable|HDMI Cable|Extension Lead|Headphone Cable|LED Strip",
          "Verlängerungskabel|Câble tressé|Cable trenzado|Przedłużacz|Prodlužovačka|Καλώδιο|Удлинитель|数据线|케이블",
          "0.5 m|1 m|2 m|3 m|5 m", True, (490, 3900), (25, 700)),
    Group("ELE", "Electronics", "Wireless Mouse|Bluetooth Speaker|Headphones|Webcam|Smart Plug|Alarm Clock",
          "Kopfhörer|Écouteurs|Ratón inalámbrico|Słuchawki|Sluchátka|Φορτιστής|Наушники|充電器|무선 마우스|Kulaklık",
          "single|twin pack", True, (1290, 24900), (40, 1500)),
    Group("SPO", "Sports", "Water Bottle|Thermos Flask|Shaker|Hydration Pack",
          "Trinkflasche|Gourde isotherme|Cantimplora|Bidon|Termoska|Παγούρι|Термос|水筒|보온병|Matara",
          "500 ml|750 ml|1 l|2 l", True, (890, 5900), (90, 800)),
    Group("SPO", "Sports", "Dumbbell|Kettlebell|Medicine Ball|Ankle Weights",
          "Kurzhantel|Haltère|Mancuerna|Hantle|Činka|Βαράκι|Гиря|ダンベル|아령|哑铃",
          "1 kg|2 kg|4 kg|8 kg", True, (790, 6900), (1000, 8100)),
    Group("PET", "Pets", "Bird Seed|Cat Litter|Dog Biscuits|Fish Flakes|Hay",
          "Katzenstreu|Croquettes au saumon|Comida para peces|Karma dla kota|Granule|Τροφή γάτας|Корм сухой|猫砂",
          "500 g|1.5 kg|4 kg|10 kg", False, (250, 5900), (500, 10200)),
    Group("PET", "Pets", "Dog Lead|Cat Collar|Dog Bed|Scratching Post|Rope Toy",
          "Hundekörbchen|Griffoir à chat|Laisse réglable|Drapak dla kota|Pelíšek|Когтеточка|猫じゃらし|강아지 방석",
          "S|M|L|XL", True, (490, 9900), (40, 6000)),
)  # fmt: skip
