"""Words of dates and times, lower case, as the larger languages print them."""

_MONTH_NAMES = (
    "january february march april may june july august september october november december",
    "januar februar märz april mai juni juli august september oktober november dezember",
    "jänner feber maerz april mai juni juli august september oktober november dezember",
    "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "gener febrer març abril maig juny juliol agost setembre octubre novembre desembre",
    "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "januari februari maart april mei juni juli augustus september oktober november december",
    "januari februari mars april maj juni juli augusti september oktober november december",
    "januar februar marts april maj juni juli august september oktober november december",
    "januar februar mars april mai juni juli august september oktober november desember",
    "tammikuuta helmikuuta maaliskuuta huhtikuuta toukokuuta kesäkuuta heinäkuuta elokuuta"
    " syyskuuta lokakuuta marraskuuta joulukuuta",
    "stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada"
    " grudnia",
    "ledna února března dubna května června července srpna září října listopadu prosince",
    "januára februára marca apríla mája júna júla augusta septembra októbra novembra decembra",
    "január február március április május június július augusztus szeptember október november"
    " december",
    "ianuarie februarie martie aprilie mai iunie iulie august septembrie octombrie noiembrie"
    " decembrie",
    "ιανουάριος φεβρουάριος μάρτιος απρίλιος μάιος ιούνιος ιούλιος αύγουστος σεπτέμβριος οκτώβριος"
    " νοέμβριος δεκέμβριος",
    "มกราคม กุมภาพันธ์ มีนาคม เมษายน พฤษภาคม มิถุนายน กรกฎาคม สิงหาคม กันยายน ตุลาคม พฤศจิกายน ธันวาคม",
    "januari februari machi aprili mei juni julai agosti septemba oktoba novemba desemba",
    "enero pebrero marso abril mayo hunyo hulyo agosto setyembre oktubre nobyembre disyembre",
    "জানুয়ারি ফেব্রুয়ারি মার্চ এপ্রিল মে জুন জুলাই আগস্ট সেপ্টেম্বর অক্টোবর নভেম্বর ডিসেম্বর",
    "ιανουαρίου φεβρουαρίου μαρτίου απριλίου μαΐου ιουνίου ιουλίου αυγούστου σεπτεμβρίου οκτωβρίου"
    " νοεμβρίου δεκεμβρίου",
    "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
    "январь февраль март апрель май июнь июль август сентябрь октябрь ноябрь декабрь",
    "січня лютого березня квітня травня червня липня серпня вересня жовтня листопада грудня",
    "ocak şubat mart nisan mayıs haziran temmuz ağustos eylül ekim kasım aralık",
    "januari februari maret april mei juni juli agustus september oktober november desember",
    "يناير فبراير مارس أبريل مايو يونيو يوليو أغسطس سبتمبر أكتوبر نوفمبر ديسمبر",
    "ינואר פברואר מרץ אפריל מאי יוני יולי אוגוסט ספטמבר אוקטובר נובמבר דצמבר",
    "जनवरी फ़रवरी मार्च अप्रैल मई जून जुलाई अगस्त सितंबर अक्टूबर नवंबर दिसंबर",
    "jan feb mar apr may jun jul aug sep oct nov dec",
    "jan feb mrz apr mai jun jul aug sept okt nov dez",
    "janv févr mars avr mai juin juil août sept oct nov déc",
    "ene feb mar abr may jun jul agos sep oct nov dic",
    "genn febbr mar apr magg giu lug agosto sett ott nov dic",
    "янв февр мар апр мая июн июл авг сент окт нояб дек",
)
_WEEKDAY_NAMES = (
    "monday tuesday wednesday thursday friday saturday sunday",
    "montag dienstag mittwoch donnerstag freitag samstag sonntag",
    "lundi mardi mercredi jeudi vendredi samedi dimanche",
    "lunes martes miércoles jueves viernes sábado domingo",
    "lunedì martedì mercoledì giovedì venerdì sabato domenica",
    "lun mar mer gio ven sab dom",
    "segunda terça quarta quinta sexta sábado domingo",
    "maandag dinsdag woensdag donderdag vrijdag zaterdag zondag",
    "måndag tisdag onsdag torsdag fredag lördag söndag",
    "mandag tirsdag onsdag torsdag fredag lørdag søndag",
    "maanantai tiistai keskiviikko torstai perjantai lauantai sunnuntai",
    "poniedziałek wtorek środa czwartek piątek sobota niedziela",
    "pondělí úterý středa čtvrtek pátek sobota neděle",
    "hétfő kedd szerda csütörtök péntek szombat vasárnap",
    "понедельник вторник среда четверг пятница суббота воскресенье",
    "понеділок вівторок середа четвер пʼятниця субота неділя",
    "pazartesi salı çarşamba perşembe cuma cumartesi pazar",
    "senin selasa rabu kamis jumat sabtu minggu",
    "الاثنين الثلاثاء الأربعاء الخميس الجمعة السبت الأحد",
    "सोमवार मंगलवार बुधवार गुरुवार शुक्रवार शनिवार रविवार",
    "mon tue wed thu fri sat sun",
    "mo tues weds thur fr sonnabend so",
    "δευτέρα τρίτη τετάρτη πέμπτη παρασκευή σάββατο κυριακή",
    "jumatatu jumanne jumatano alhamisi ijumaa jumamosi jumapili",
    "lunes martes miyerkules huwebes biyernes sabado linggo",
    "isnin selasa rabu khamis jumaat sabtu ahad",
    "จันทร์ อังคาร พุธ พฤหัสบดี ศุกร์ เสาร์ อาทิตย์",
    "luni marți miercuri joi vineri sâmbătă duminică",
    "월요일 화요일 수요일 목요일 금요일 토요일 일요일",
)
MONTHS = {name: i + 1 for names in _MONTH_NAMES for i, name in enumerate(names.split())}
WEEKDAYS = frozenset(name for names in _WEEKDAY_NAMES for name in names.split())
WORDS = {
    kind: frozenset(words.split())
    for kind, words in {
        "unit": "ms s sec secs second seconds m min mins minute minutes h hr hrs hour hours d day"
        " days week weeks month months year years sekunde sekunden minuten stunde stunden tag tage"
        " tagen woche wochen seconde secondes heure heures jour jours segundo segundos minuto"
        " minutos hora ora horas día días dias ore minuti giorni минут минуты минуту часов часа"
        " час дней дня minuty minutę godzin godziny godzinę sekund sekundy dni minuut uur uren"
        " dagen dager dagar"
        " dage timer timmar minutter dakika saat gün saniye menit jam detik hari minuutti tuntia"
        " ngày giờ phút",
        "ago": "ago elapsed uptime vor hace fa há назад 前 전 geleden siden sedan temu önce lalu",
        "day": "yesterday today tomorrow now gestern heute ayer hoy ieri oggi hoje ontem hier"
        " aujourd hui"
        " вчера сегодня только что gisteren vandaag wczoraj dziś",
        "daypart": "morning afternoon evening night noon midnight dawn dusk morgen abend"
        " nacht nachmittag vormittag tardes noches tarde noite dia giorno sera soir nuit matin"
        " afternoons"
        " утро утра день дня вечер вечера ночь ночи rano wieczór noc middag kväll kveld ochtend"
        " avond",
        "hour": "am pm p uhr oclock o'clock o’clock",
        "number": "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
        " fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty half quarter past"
        " first third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth"
        " fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth thirtieth",
        "season": "spring summer autumn fall winter frühling frühjahr sommer herbst printemps été"
        " automne hiver primavera verano otoño invierno estate autunno inverno verão outono весна"
        " лето осень зима",
        "zone": "utc gmt bst msk jst kst ist cet cest eet eest wet west est edt cst cdt mst mdt pst"
        " pdt akst akdt hst aest aedt nzst nzdt sgt hkt brt",
        "period": "q fy cy kw",
        "glue": "just t z w at of the on st nd rd th er to and a an pt de del le den der um las"
        " la à il y das feira г р mi do sa kl klo pukul wib wita wit ngày tháng năm thứ ba tư năm"
        " sáu bảy"
        " chủ nhật sa's 's good bom boa bon bonne bonsoir buenos buenas buongiorno guten god"
        " goede early late mid dini lewat less than about only wieczorem e und et en og och i ja"
        " ve и po nin",
    }.items()
}
